"""What two machines differ in: the hardware itself, and whatever changes a selection."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.machine import Memory, Vendor
from attnctl.machines import load, names
from attnctl.machines.differences import Difference, differences, static_differences
from tests.machines.probed import changed, probed_h200, with_gpu, zen3_guest


@pytest.mark.parametrize("name", names())
def test_a_machine_does_not_differ_from_itself(name: str) -> None:
    """No field compares unequal to itself in either diff."""
    assert static_differences(load(name), load(name)) == ()
    assert differences(load(name), load(name)) == ()


def test_every_pair_of_bundled_machines_differs() -> None:
    """No two bundled machines are the same hardware: the static diff tells each pair apart."""
    machines = [load(name) for name in names()]
    alike = [
        (left.name, right.name)
        for index, left in enumerate(machines)
        for right in machines[index + 1 :]
        if not static_differences(left, right)
    ]
    # one design, sold twice: they differ in cores and memory, which are no facts of the design
    assert alike == [("grace", "graviton4")]


def test_a_probed_h200_agrees_with_the_bundled_one() -> None:
    """Names, case, the number of cards, driver and a bandwidth from clocks do not count."""
    assert static_differences(load("h200"), probed_h200()) == ()
    assert static_differences(probed_h200(), load("h200")) == ()


def test_a_probed_guest_agrees_with_the_bundled_design() -> None:
    """A guest's few cores, its short model name and its memory are no facts of the design."""
    assert static_differences(load("zen3"), zen3_guest()) == ()


def test_another_card_shows_in_what_it_is() -> None:
    """H100 against H200: same architecture, other device, memory and bandwidth."""
    assert static_differences(load("h100"), load("h200")) == (
        Difference("nvidia.gpus.0.pci_id", "10de:2330", "10de:2335"),
        Difference("nvidia.gpus.0.bandwidth_gbps", 3350.0, 4800.0),
        Difference("nvidia.gpus.0.memory.total_bytes", 81_559 << 20, 143_771 << 20),
    )


def test_features_of_a_processor_differ_one_by_one() -> None:
    """Emerging instruction sets are named, with which side has them."""
    found = static_differences(load("zen4"), load("zen5"))
    assert found == (
        Difference("cpu.microarchitecture", "zen4", "zen5"),
        Difference("cpu.isa.avx_vnni", False, True),
    )


def test_a_gpu_that_only_one_machine_has_is_one_difference() -> None:
    """A processor against an H100: the count differs, and nothing of the GPU is listed."""
    assert static_differences(load("zen3"), load("h100")) == (Difference("nvidia.gpus", 0, 1),)


@pytest.mark.parametrize("status", ["unknown", "timeout"])
def test_a_vendor_that_could_not_be_asked_is_not_a_difference(status: str) -> None:
    """Not known is not absent: a broken driver does not make it another machine."""
    blind = changed(load("h200"), nvidia=Vendor(status=status, reason="no driver"))
    assert static_differences(load("h200"), blind) == ()


@pytest.mark.parametrize(
    ("fields", "differ"),
    [
        ({"bandwidth_gbps": 4800.0 * 1.03}, False),
        ({"bandwidth_gbps": 4800.0 * 1.05}, True),
        ({"bandwidth_gbps": None}, False),
        ({"memory": Memory(kind="discrete", total_bytes=142_400 << 20)}, False),
        ({"memory": Memory(kind="discrete", total_bytes=140_000 << 20)}, True),
        ({"memory": Memory(kind="unknown", total_bytes=None)}, False),
        ({"memory": Memory(kind="mig", total_bytes=143_771 << 20)}, True),
        ({"unit_count": 131}, True),
        ({"unit_count": None}, False),
        ({"pci_id": "10DE:2335"}, False),
        ({"pci_id": "10de:2336"}, True),
        ({"arch": "SM-90"}, False),
        ({"arch": "sm_91"}, True),
        ({"capability": (9, 1)}, True),
        ({"fp64": False}, True),
        ({"warp_size": 64}, True),
        ({"shared_memory_bytes": 232_447}, True),
        ({"name": "H200 NVL"}, False),
        ({"uuid": "GPU-1", "visible": False, "features": ("x",)}, False),
    ],
)
def test_each_static_field_has_its_tolerance(fields: dict[str, Any], differ: bool) -> None:
    """Bandwidth within 3 %, memory within 1 %, the rest exact, unknown never."""
    assert bool(static_differences(load("h200"), with_gpu(load("h200"), **fields))) is differ


@pytest.mark.parametrize(("mib", "differ"), [(124_610, False), (118_000, False), (61_000, True)])
def test_unified_memory_may_move_by_what_firmware_keeps(mib: int, differ: bool) -> None:
    """Two boots of one GB10 report totals that lie 2 % apart."""
    moved = with_gpu(load("gb10"), memory=Memory(kind="unified", total_bytes=mib << 20))
    assert bool(static_differences(load("gb10"), moved)) is differ


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"isa_level": "x86_64_v4"}, []),
        ({"microarchitecture": "zen5"}, ["cpu.microarchitecture"]),
        ({"vendor": "Intel"}, ["cpu.vendor"]),
        ({"arch": "aarch64"}, ["cpu.arch"]),
        ({"isa": ()}, []),
        ({"isa": ("avx2",), "sve_bits": 128, "model": "x"}, None),
    ],
)
def test_static_fields_of_a_processor(fields: dict[str, Any], paths: list[str] | None) -> None:
    """Spelling of a level does not count; what one side does not know is no difference."""
    zen4 = load("zen4")
    found = [
        d.path for d in static_differences(zen4, changed(zen4, cpu=changed(zen4.cpu, **fields)))
    ]
    if paths is None:
        assert found == [f"cpu.isa.{name}" for name in sorted(set(zen4.cpu.isa) - {"avx2"})]
    else:
        assert found == paths
