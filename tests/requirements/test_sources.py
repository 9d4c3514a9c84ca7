"""Where the found side of a finding came from: the device and its packages, not the config."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.findings import Finding
from attnctl.machine import Machine, Package
from tests import machine_factory as box
from tests.layer_factory import candidate, decide, group


def on(machine: Machine, name: str, code: str, **facts: object) -> Finding:
    """The finding of one rule of one backend for one layer."""
    options = {k: facts.pop(k) for k in ("kv_cache_dtype",) if k in facts}
    decision = decide(group(**facts), machine, **options)
    return next(f for f in candidate(decision, name).findings if f.code == code)


def with_source(machine: Machine, **packages: Package) -> Machine:
    return msgspec.structs.replace(machine, packages={**machine.packages, **packages})


FA2 = Package(status="ok", source="flash_attn-2.8.dist-info", version="2.8")
WHEEL = Package(status="ok", source="vllm-0.33.dist-info", version="0.33")


@pytest.mark.parametrize(
    ("code", "facts", "found"),
    [
        ("sinks", {"sinks": True}, "FA2 on compute capability 8.0"),
        ("prefix_lm", {"prefix_lm": True}, "FA2 on compute capability 8.0"),
        ("alibi", {"alibi": True}, "FA2 on compute capability 8.0"),
    ],
)
def test_a_flash_version_is_found_on_the_device_and_among_the_packages(
    code: str, facts: dict[str, bool], found: str
) -> None:
    """The demand stands in the config; what was found does not."""
    machine = with_source(box.cuda(8, packages=("torch",)), flash_attn=FA2)
    finding = on(machine, "FLASH_ATTN", code, **facts)
    assert finding.found == found
    assert finding.source == "machine cuda-80 and flash_attn-2.8.dist-info"


def test_a_version_in_vllms_wheel_was_found_there() -> None:
    """FA3 has no package of its own here."""
    machine = with_source(box.cuda(9, packages=("torch",)), vllm=WHEEL)
    finding = on(machine, "FLASH_ATTN", "sinks", sinks=True)
    assert finding.met
    assert finding.source == "machine cuda-90 and vllm-0.33.dist-info"
    version = on(machine, "FLASH_ATTN", "flash_version")
    assert (version.found, version.source) == ("FA3", "vllm-0.33.dist-info")


def test_a_version_that_is_missing_was_missed_on_the_machine() -> None:
    """The list of packages is the source of an absence."""
    machine = box.cuda(9, packages=("torch",))
    finding = on(machine, "FLASH_ATTN", "flash_version")
    assert finding.source == "packages of machine cuda-90"
    assert "not installed" in finding.found


def test_flashinfers_cubins_and_device_are_no_matter_of_the_config() -> None:
    """An old device, missing cubins, and both met."""
    old = on(box.cuda(8), "FLASHINFER", "sinks", sinks=True)
    bare = on(box.cuda(9, packages=("torch", "flashinfer")), "FLASHINFER", "sinks", sinks=True)
    good = on(box.cuda(9), "FLASHINFER", "sinks", sinks=True)
    assert (old.found, old.source) == (
        "no such kernels on compute capability 8.0",
        "machine cuda-80",
    )
    assert (bare.found, bare.source) == ("no cubins", "packages of machine cuda-90")
    assert (good.met, good.source) == (True, "machine cuda-90 and test")


def test_a_cache_dtype_that_hinges_on_the_device_cites_both() -> None:
    """The option says the format, the machine the rest."""
    finding = on(box.cuda(8), "FLASH_ATTN", "kv_cache_dtype", kv_cache_dtype="fp8")
    assert finding.found == "fp8 on 8.0 with FA2"
    assert finding.source == "--kv-cache-dtype and machine cuda-80 and test"
