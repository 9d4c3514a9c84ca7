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
    from attnctl.tune.settings import Setting


def case_launches(runtime: Any, case: Case, machine: Machine, batch: Any = None) -> list[Launch]:
    """Every launch of a case on the machine's GPU, in order. batch: as in meta_calls.call."""
    from attnctl.kernels.triton.launch import Device
    from attnctl.kernels.triton.stand_in import standing_on
    from attnctl.ops.meta_calls import call

    gpu = gpu_of(machine)
    device = Device(gpu.arch or "", gpu.unit_count or 1, gpu.shared_memory_bytes or 0)
    with standing_on(device), recording() as launches:
        call(runtime, case, batch)
    return launches


def settings_for(runtime: Any, case: Case, machine: Machine) -> tuple[Setting, ...]:
    """Every setting of the runtime that tune would try on the case's batch, the default first."""
    from attnctl.ops.catalog import layer_for
    from attnctl.tune.settings import Limits, Work, settings_of

    queries, contexts = (
        [int(part) for part in str(case.params.get(name, "1")).split("+") if part]
        for name in ("queries", "contexts")
    )
    query, gpu = max(queries, default=1), gpu_of(machine)
    work = Work(
        layer=layer_for(case),
        phase="prefill" if query > 1 else "decode",
        batch=len(queries),
        context=max(contexts, default=query),
        query=query,
        page=case.count("page") if "page" in case.params else 0,
    )
    shared = gpu.shared_memory_bytes or 0
    limits = Limits(arch=gpu.arch or "", units=gpu.unit_count or 1, shared_memory_bytes=shared)
    return settings_of(runtime, work, limits)


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
