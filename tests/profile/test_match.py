"""Whether a profile fits a machine: foreign, stale, and dead where a kernel changed."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.profile import Versions, measured_order
from attnctl.profile.diff import difference
from attnctl.profile.match import match
from attnctl.profile.merge import merge
from tests.profile.two_backends import KEY, LAYER, machine, profile


@pytest.mark.parametrize("name", ["AMD_Instinct_MI308X_OAM", "AMD Radeon Graphics", None])
def test_a_profile_is_found_whatever_the_image_calls_the_card(name: str | None) -> None:
    """The key is vendor, arch, PCI device and unit count; the marketing name has no say."""
    box = machine(name=name or "")
    assert match(profile(names=()), box, box.gpus[0]).status == "valid"


def test_the_case_of_a_keys_names_is_no_difference() -> None:
    """A machine file may hold "1002:74A2", as some tools print it, and "GFX942"."""
    box = machine()
    shouted = msgspec.structs.replace(box.gpus[0], arch="GFX942", pci_id="1002:74A2")
    assert match(profile(names=()), box, shouted).status == "valid"
    other = msgspec.structs.replace(shouted, pci_id="1002:74A3")
    assert match(profile(names=()), box, other).status == "foreign"
    key = msgspec.structs.replace(KEY, vendor="AMD", arch="Gfx942", pci_id="1002:74A2")
    named = msgspec.structs.replace(profile((9.0, 3.0), names=("A", "B")), key=key)
    assert merge(profile(names=()), named).key == key
    assert difference(profile(names=()), msgspec.structs.replace(named, entries=())).fields == ()


@pytest.mark.parametrize(
    ("written", "status"),
    [
        ("74a2", "valid"),
        ("0x74A2", "valid"),
        ("0x1002:0x74a2", "foreign"),
        ("74a3", "foreign"),
        ("0x74a", "foreign"),
        ("10de:74a2", "foreign"),
        ("", "foreign"),
    ],
)
def test_a_pci_device_may_be_written_without_its_vendor(written: str, status: str) -> None:
    """sysfs prints "0x74a2", and a key names its vendor beside."""
    box = machine()
    stated = msgspec.structs.replace(KEY, pci_id=written)
    timed = msgspec.structs.replace(profile(names=()), key=stated)
    assert match(timed, box, box.gpus[0]).status == status


@pytest.mark.parametrize("field", ["vendor", "arch", "pci_id", "unit_count"])
def test_another_key_is_foreign_and_says_which_field(field: str) -> None:
    """A profile of another part is not used, and the finding names both values."""
    other = msgspec.structs.replace(KEY, **{field: 79 if field == "unit_count" else "other"})
    foreign = msgspec.structs.replace(profile(names=()), key=other)
    box = machine()
    found = match(foreign, box, box.gpus[0])
    assert found.status == "foreign"
    assert not found.usable
    assert [f.wanted for f in found.findings if not f.met] == [f"{field} {getattr(other, field)}"]


@pytest.mark.parametrize(
    ("now", "status", "note"),
    [
        ({"triton": "3.7.1", "torch": "2.8.0"}, "stale", "profile_version"),
        ({"triton": "3.4.0", "torch": "2.8.0"}, "valid", None),
        ({"triton": "3.4.0", "torch": "2.8.0", "driver": "580.2"}, "valid", "profile_driver"),
        ({"torch": "2.8.0"}, "stale", "profile_version"),  # a version that nobody could tell
    ],
)
def test_another_compiler_is_stale_and_another_driver_a_note(
    now: dict[str, str], status: str, note: str | None
) -> None:
    """Stale profiles are used with a warning; an unknown version never locks the file."""
    timed = profile(names=(), versions=Versions(torch="2.8.0", triton="3.4.0", driver="570.1"))
    box = machine(**{"driver": "570.1", **now})
    found = match(timed, box, box.gpus[0])
    assert (found.status, found.usable) == (status, True)
    assert [f.code for f in found.findings if not f.met] == ([note] if note else [])


def test_timings_of_a_changed_kernel_are_dead_and_the_others_live() -> None:
    """An edited kernel expires only its own timings."""
    timed = profile(
        (9.0, 3.0, 5.0), names=("A", "B", "C"), kernels={"A": "aaa", "B": "aaa", "C": "aaa"}
    )
    order = measured_order(timed, LAYER, ["A", "B", "C"], {"A": "aaa", "B": "bbb", "C": "aaa"})
    assert order is not None
    assert (order.names, set(order.because)) == (("C", "B", "A"), {"A"})
