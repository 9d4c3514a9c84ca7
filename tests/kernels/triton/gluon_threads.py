"""Runs a Gluon kernel's own source in threads: one for each group of warps, and one for each copy.

Triton's interpreter has no Gluon. What decides whether such a kernel is right on paper, though, is
in its source: which rows it copies where, what waits for what, what is masked. Here shared memory
is arrays that begin as NaN, copies arrive late, and a barrier counts arrivals and bytes as PTX's
does, so that a wait too few is a wrong number and one too many a StuckError. Precision, layouts and
speed are a GPU's to show.
"""

from __future__ import annotations

import ast
import inspect
import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from tests.kernels.triton.gluon_memory import (
    Barrier,
    Barriers,
    Box,
    Memory,
    Scalar,
    Shared,
    Values,
    values,
)

PATIENCE_SECONDS = 20.0
"""How long a group may wait on a busy machine."""


class StuckError(AssertionError):
    """A group that waits for what nobody brings."""


class Program:
    """One program: what a kernel's source finds under the names of Gluon."""

    def __init__(self, number: int, programs: int, shared: Any, patience: float) -> None:
        self.number, self.programs, self.patience = number, programs, patience
        self.lock, self.stop, self.faults = shared.lock, shared.stop, shared.faults

    def names(self) -> dict[str, Any]:
        plain = (
            "minimum maximum cdiv load store atomic_add arange full zeros_like where exp2 log2 max "
            "sum convert_layout static_range num_programs program_id allocate_shared_memory "
            "warp_specialize"
        )
        gl: dict[str, Any] = {name: getattr(self, name) for name in plain.split()}
        layouts = "BlockedLayout SliceLayout DotOperandLayout NVMMADistributedLayout"
        for name in (*layouts.split(), "DistributedLinearLayout", "SwizzledSharedLayout"):
            gl[name] = lambda *given, **more: None
        gl["NVMMASharedLayout"] = SimpleNamespace(get_default_for=lambda *given: None)
        gl |= {"constexpr": None, "float32": numpy.float32}
        gl |= {"int32": numpy.int32, "int64": numpy.int64}
        barriers = {"init": self.init, "wait": self.wait, "arrive": self.arrive}
        barriers |= {"expect": self.expect, "MBarrierLayout": lambda: Barriers}
        return {
            "gl": SimpleNamespace(**gl),
            "mbarrier": SimpleNamespace(**barriers),
            "copy_box": self.copy_box,
            "warpgroup_mma": self.multiply,
            "warpgroup_mma_wait": lambda left, deps: deps[0] if len(deps) == 1 else deps,
            "fence_async_shared": lambda: None,
            "sync_warps": lambda: None,
            "range": lambda *ends: map(Scalar, range(*ends)),
        }

    def init(self, barrier: Barrier, count: int) -> None:
        barrier[0].count = barrier[0].pending = count

    def wait(self, barrier: Barrier, parity: int) -> None:
        one, change = barrier
        with change:
            begin = time.monotonic()
            while one.phase & 1 == parity & 1:
                change.wait(0.2)
                if self.stop.is_set() or time.monotonic() - begin > self.patience:
                    self.stop.set()
                    raise StuckError(f"program {self.number}: parity {parity} never comes")

    def arrive(self, barrier: Barrier, pred: bool = True, arrivals: int = 1, size: int = 0) -> None:
        one, change = barrier
        if not pred:
            return
        with change:
            one.pending -= arrivals
            one.bytes += size
            assert one.pending >= 0, "more arrivals in a phase than the barrier counts"
            if one.pending == one.bytes == 0:
                one.phase, one.pending = one.phase + 1, one.count
                change.notify_all()

    def expect(self, barrier: Barrier, size: int, pred: bool = True) -> None:
        self.arrive(barrier, pred, 1, size)

    def copy_box(
        self, box: Box, at: list[int], barrier: Barrier, into: Shared, pred: bool = True
    ) -> None:
        assert list(into.shape) == list(box.block_shape), (into.shape, box.block_shape)

        def arrive() -> None:
            time.sleep(random.random() * 2e-4)
            box.copy(int(at[0]), int(at[1]), into.array)
            self.arrive(barrier, True, 0, -2 * into.array.size)

        if pred:
            threading.Thread(target=self.guarded, args=(arrive, ())).start()

    def allocate_shared_memory(self, kind: Any, shape: list[int], layout: Any) -> Any:
        if layout is Barriers:
            return Barriers(shape[0])
        whole = kind is numpy.int32
        return Shared(numpy.full(shape, 0 if whole else numpy.nan, kind if whole else "float32"))

    def guarded(self, call: Any, given: tuple[Any, ...]) -> None:
        """What a thread of its own does: its fault is the program's, which stops."""
        try:
            with numpy.errstate(all="ignore"):
                call(*given)
        except BaseException as fault:
            self.faults.append(fault)
            self.stop.set()

    def warp_specialize(self, groups: list[Any], warps: list[int], registers: list[int]) -> None:
        threads = [threading.Thread(target=self.guarded, args=group) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def multiply(
        self, a: Any, b: Shared, acc: Any, use_acc: bool = True, is_async: bool = True
    ) -> Values:
        found = numpy.asarray(a.array if isinstance(a, Shared) else a) @ b.array
        return values(found + acc if use_acc else found)

    def minimum(self, a: Any, b: Any) -> Any:
        return self._either(numpy.minimum, a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        return self._either(numpy.maximum, a, b)

    def _either(self, which: Any, a: Any, b: Any) -> Any:
        found = which(a, b)
        return values(found) if found.ndim else Scalar(found)

    def cdiv(self, a: int, b: int) -> Scalar:
        return Scalar(-(-a // b))

    def load(self, pointer: Memory, mask: Any = True, other: int = 0) -> Scalar:
        return Scalar(pointer.flat[pointer.at] if mask else other)

    def store(self, pointer: Memory, found: Any, mask: Any = True) -> None:
        at, found, mask = numpy.broadcast_arrays(pointer.at, found, mask)
        pointer.flat[at[mask]] = found[mask]

    def atomic_add(self, pointer: Memory, number: int) -> Scalar:
        with self.lock:
            before = Scalar(pointer.flat[pointer.at])
            pointer.flat[pointer.at] += number
        return before

    def arange(self, begin: int, end: int, layout: Any) -> Values:
        return values(numpy.arange(begin, end))

    def full(self, shape: list[int], number: Any, kind: Any, layout: Any = None) -> Values:
        return values(numpy.full(shape, number, kind))

    def zeros_like(self, like: Values) -> Values:
        return values(numpy.zeros_like(like))

    def where(self, seen: Any, a: Any, b: Any) -> Values:
        return values(numpy.where(seen, a, b))

    def exp2(self, of: Values) -> Values:
        return values(numpy.exp2(of))

    def log2(self, of: Values) -> Values:
        return values(numpy.log2(of))

    def max(self, of: Values, axis: int) -> Any:
        found = numpy.asarray(of).max(axis)
        return values(found) if numpy.ndim(found) else Scalar(found)

    def sum(self, of: Values, axis: int) -> Values:
        return values(numpy.asarray(of).sum(axis))

    def convert_layout(self, of: Values, layout: Any) -> Values:
        return of

    def static_range(self, *ends: int) -> range:
        return range(*ends)

    def num_programs(self, axis: int) -> Scalar:
        return Scalar(self.programs)

    def program_id(self, axis: int) -> Scalar:
        return Scalar(self.number)


def source_of(modules: tuple[Any, ...]) -> str:
    """The functions of some modules as plain Python, without what Gluon's compiler needs."""
    kept: list[ast.stmt] = []
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = []
                kept.append(node)
    return "from __future__ import annotations\n" + ast.unparse(ast.Module(kept, []))


def run_in_threads(
    launch: Any, source: str, programs: int, patience: float = PATIENCE_SECONDS
) -> None:
    """Runs a launch over tensors on the CPU as so many programs; what it writes is in them.

    Raises what a group raised first: `StuckError` where it waits in vain.
    """
    arguments: list[Any] = []
    written: dict[int, tuple[torch.Tensor, numpy.ndarray]] = {}
    for given in launch.arguments:
        if isinstance(given, torch.Tensor):
            flat = given.float() if given.is_floating_point() else given.clone()
            written.setdefault(id(given), (given, flat.reshape(-1).numpy()))
            arguments.append(Memory(written[id(given)][1]))
        elif hasattr(given, "block_shape"):
            arguments.append(Box(given))
        else:
            arguments.append(Scalar(given) if isinstance(given, int) else given)
    names = launch.kernel.arg_names
    constants = {name: value for name, value in launch.constants.items() if name in names}
    code = compile(source, "kernel", "exec")
    shared = SimpleNamespace(lock=threading.Lock(), stop=threading.Event(), faults=[])
    calls = []
    for number in range(programs):
        space = Program(number, programs, shared, patience).names()
        exec(code, space)
        kernel = space[launch.kernel.__name__]
        calls.append(threading.Thread(target=kernel, args=arguments, kwargs=constants))
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    if shared.faults:
        raise shared.faults[0]
    for tensor, flat in written.values():
        tensor.copy_(torch.from_numpy(flat).view(tensor.shape))
