"""Two independent accounts of one card agree: its invented tape, and its bundled machine file."""

import pytest

from attnctl.machines import load
from attnctl.machines.differences import static_differences
from attnctl.probe import probe
from tests.probe.gpu_tapes import machine

PAIRS = {
    "h100x8": ("h100", "nvidia"),
    "gb10": ("gb10", "nvidia"),
    "wsl-rtx3090": ("rtx3090", "nvidia"),
    "mi300x-x8": ("mi300x", "amd"),
    "mi250x": ("mi250x", "amd"),
    "rx7900xtx-amdsmi-broken": ("rx7900xtx", "amd"),
    "strix-halo": ("strix-halo", "amd"),
    "arc-a770": ("arc-a770", "intel"),
    "arc-b580": ("arc-b580", "intel"),
    "max1550": ("max1550", "intel"),
}


@pytest.mark.parametrize("tape", PAIRS)
def test_the_first_gpu_of_a_tape_is_that_of_the_bundled_file(tape):
    """Arch, PCI id, units, warp, memory, bandwidth and arithmetic: nothing static differs."""
    name, vendor = PAIRS[tape]
    found = probe(machine(tape))
    assert found.platform == load(name).platform
    differing = [
        (difference.path, difference.old, difference.new)
        for difference in static_differences(load(name), found)
        if difference.path.startswith(f"{vendor}.gpus.0.")
    ]
    assert differing == []
