"""What a backend would launch for a case: its own runtime, called on tensors without memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attnctl.compiling.targets import gpu_of

if TYPE_CHECKING:
    from attnctl.kernels.triton.launch import Launch
    from attnctl.machine import Machine
    from attnctl.ops.case import Case


def case_launches(runtime: Any, case: Case, machine: Machine) -> list[Launch]:
    """Every launch of a case on the machine's GPU, in order."""
    from attnctl.kernels.triton.launch import Device
    from attnctl.kernels.triton.stand_in import standing_on
    from attnctl.ops.meta_calls import call

    gpu = gpu_of(machine)
    device = Device(gpu.arch or "", gpu.unit_count or 1, gpu.shared_memory_bytes or 0)
    with standing_on(device), recording() as launches:
        call(runtime, case)
    return launches


@contextmanager
def recording() -> Iterator[list[Launch]]:
    """Notes each launch of a Triton kernel inside the block, and launches none."""
    from triton.runtime.jit import JITFunction

    from attnctl.kernels.triton.launch import Launch

    noted: list[Launch] = []

    def note(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **constants: Any) -> None:
        noted.append(Launch(kernel, grid, arguments, constants))

    launch = JITFunction.run
    JITFunction.run = note
    try:
        yield noted
    finally:
        JITFunction.run = launch
