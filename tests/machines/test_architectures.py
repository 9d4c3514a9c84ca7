"""A machine of which only the architecture is known, or what its driver calls the GPU."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.machines import load
from attnctl.machines.archs import arch_of
from tests.commands.running import LLAMA, run


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("sm_121", "sm_121"),
        ("SM_90a", "sm_90"),
        ("sm86", "sm_86"),
        ("12.1", "sm_121"),
        ("8.6", "sm_86"),
        ("compute_100f", "sm_100"),
        ("gfx90a", "gfx90a"),
        ("gfx1151", "gfx1151"),
        ("gfx942:sramecc+:xnack-", "gfx942"),
        ("sm-90", "sm_90"),
        ("sm 90", "sm_90"),
        ("gfx942:", None),
        ("\uff19.0", None),
        ("4090", None),
        ("h200", None),
        ("gfx", None),
        ("", None),
    ],
)
def test_what_counts_as_an_architecture(text: str, arch: str | None) -> None:
    """Compilers' names and capabilities with a point; a bare number is a product."""
    assert arch_of(text) == arch


@pytest.mark.parametrize(
    ("text", "capability", "shared_kib"),
    [("12.1", (12, 1), 99), ("sm_87", (8, 7), 163), ("sm_90", (9, 0), 227), ("7.5", (7, 5), 64)],
)
def test_what_an_architecture_fixes_is_known_and_nothing_else(
    text: str, capability: tuple[int, int], shared_kib: int
) -> None:
    """No device has 8.7 here: its capability and its block's memory are known all the same."""
    machine = load(text)
    (gpu,) = machine.gpus
    assert (gpu.capability, gpu.shared_memory_bytes) == (capability, shared_kib * 1024)
    assert (gpu.unit_count, gpu.pci_id, gpu.memory.total_bytes, gpu.name) == (None,) * 4
    assert machine.platform == "cuda"
    assert (machine.cpu.status, machine.cpu.arch, machine.cpu.isa) == ("unknown", None, ())


@pytest.mark.parametrize("text", ["gfx942", "gfx1151", "gfx1101", "gfx1200"])
def test_amd_architectures_are_of_their_generation(text: str) -> None:
    """The arch is the one that was named, the local memory that of its relatives."""
    machine = load(text)
    assert (machine.platform, machine.gpus[0].arch) == ("rocm", text)
    assert machine.gpus[0].shared_memory_bytes


def test_who_names_nothing_is_told_that_architectures_count() -> None:
    """Beside the bundled machines."""
    with pytest.raises(
        InputError, match=r"known are a10, .* and architectures, as sm_90 or gfx942"
    ):
        load("qqq")


def test_a_generation_that_nobody_has_is_refused() -> None:
    """Pascal."""
    with pytest.raises(InputError, match="no bundled machine is of this generation"):
        load("sm_61")


def test_what_the_driver_calls_a_gpu_finds_its_machine() -> None:
    """As nvidia-smi -L prints it."""
    assert load("NVIDIA H100 80GB HBM3").name == "h100"


def test_an_architecture_is_answered_and_said_to_be_one() -> None:
    """A pick, a name that is the architecture, and no memory that it could not know."""
    found = run("select", "--model", LLAMA, "--machine", "12.1", "--json")
    assert found.code == 0
    assert found.json["machine"]["name"] == "sm_121"
    shown = run("probe", "--machine", "sm_121", "--json").json
    assert shown["sources"] == [
        "an architecture was named: what gb10 has of its own is not taken over"
    ]


def test_every_architecture_of_a_known_machine_is_answered() -> None:
    """The same pick for a plain model as on the machine itself."""
    for name in ("t4", "a10", "h200", "b200", "rtx5090", "mi300x", "rx9070xt"):
        (gpu,) = load(name).gpus
        picks = [
            run("select", "--model", LLAMA, "--machine", word, "--profile", "none", "--json").json
            for word in (name, gpu.arch or "")
        ]
        assert picks[0]["groups"][0]["pick"] == picks[1]["groups"][0]["pick"], name
