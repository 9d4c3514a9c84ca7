"""Where kernels run, as a user names it."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from attnctl.ops.catalog import all_cases
from attnctl.registry import load
from attnctl.smoke.place import Place, read_place
from attnctl.smoke.planning import plan
from tests import machine_factory as box

REGISTRY = load()
HOPPER, CDNA, CPU = box.cuda(9), box.rocm(), box.cpu(packages=("torch", "triton"))


@pytest.mark.parametrize(
    ("text", "machine", "place"),
    [
        ("cpu", HOPPER, Place("cpu", "device")),
        ("interpret", HOPPER, Place("interpret", "interpret")),
        ("cuda", HOPPER, Place("cuda", "device")),
        ("CUDA:0", HOPPER, Place("cuda:0", "device", 0)),
        ("cuda", CDNA, Place("cuda", "device")),
        ("xpu", box.xpu(), Place("xpu", "device")),
    ],
)
def test_a_device_is_read_as_torch_names_it(text: str, machine: object, place: Place) -> None:
    """torch calls AMD's devices cuda too."""
    assert read_place(text, machine) == place


@pytest.mark.parametrize(
    ("text", "machine", "says"),
    [
        ("gpu", HOPPER, "--device gpu: no such device"),
        ("cpu:1", HOPPER, "--device cpu:1: no such device"),
        ("cuda:x", HOPPER, "--device cuda:x: no such device"),
        ("cuda:1", HOPPER, "--device cuda:1: this machine has only device 0"),
        ("cuda", CPU, "--device cuda: the device of this machine is a CPU"),
        ("xpu", HOPPER, "--device xpu: the device of this machine is NVIDIA (CUDA)"),
    ],
)
def test_a_device_that_is_not_there_is_refused(text: str, machine: object, says: str) -> None:
    """One sentence says what there is."""
    with pytest.raises(InputError) as refused:
        read_place(text, machine)
    assert says in str(refused.value)


def planned(name: str, place: str, machine: object) -> tuple[str, str, int, set[str]]:
    backend = REGISTRY.get(name)
    assert backend is not None
    found = plan(backend, machine, all_cases(), read_place(place, machine))
    codes = {reason.code for trial in found.refused for reason in trial.reasons}
    return found.device, found.level, len(found.runnable), codes


def test_the_interpreter_runs_triton_kernels_that_have_a_form_for_processors_beside_them() -> None:
    """GDN_ATTN runs plain torch on a processor, unless its Triton kernels are asked for."""
    for machine in (HOPPER, CPU):
        device, level, count, _ = planned("GDN_ATTN", "interpret", machine)
        assert (device, level, count > 50) == ("interpret", "interpret", True)


def test_what_has_no_triton_kernels_of_ours_is_not_interpreted() -> None:
    """C++ on processors, torch's own compiler, calls into packages."""
    for name in ("CPU_ATTN", "FLEX_ATTENTION", "FLASH_ATTN"):
        _, _, count, codes = planned(name, "interpret", CPU)
        assert count == 0
        assert "interpret" in codes


def test_on_a_processor_only_what_runs_there_does() -> None:
    """A GPU beside it changes nothing."""
    assert planned("CPU_ATTN", "cpu", HOPPER)[2] > 90
    _, _, count, codes = planned("TRITON_ATTN", "cpu", HOPPER)
    assert count == 0
    assert "platform" in codes


def test_on_a_gpu_a_processors_kernels_are_refused() -> None:
    """The platform is the reason."""
    assert planned("TRITON_ATTN", "cuda:0", HOPPER)[2] > 90
    _, _, count, codes = planned("CPU_ATTN", "cuda", HOPPER)
    assert count == 0
    assert "platform" in codes
