"""The child that warms: runs each setting once as a plan does, and counts what is compiled for it.

Reads one Begin and then one Job a line, writes one Made a line. It alone imports torch.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from attnctl.exits import InputError
from attnctl.smoke.worker import private_answers, say
from attnctl.warming.values import Begin, Job, Made

if TYPE_CHECKING:
    from attnctl.plans.opening import LayerPlan

DETAIL = 600
_BUILT = re.compile(r"-[0-9a-f]{20}\.so$")


def main() -> int:
    answers = private_answers()
    begin = msgspec.json.decode(sys.stdin.readline(), type=Begin)
    warmer: Warmer | None = None
    for line in sys.stdin:
        job, start = msgspec.json.decode(line, type=Job), time.perf_counter()
        try:
            warmer = warmer or Warmer(begin)
            made = warmer.warm(job)
        except Exception as error:  # one setting's error is that setting's result
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"[:DETAIL]
            made = Made(status="error", detail=words)
        took = round(time.perf_counter() - start, 3)
        say(answers, msgspec.structs.replace(made, seconds=took))
    return 0


class Warmer:
    """The plans of a profile's layer shapes on one device."""

    def __init__(self, begin: Begin) -> None:
        import torch

        from attnctl.registry import load

        self._begin = begin
        self._device = torch.device(begin.place)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device.index or 0)
        self._registry = load()
        self._plans: dict[Any, LayerPlan] = {}
        self._count = Count()

    def warm(self, job: Job) -> Made:
        """Runs every batch of the job once. An error of a kernel is raised."""
        import torch

        from attnctl.plans.settings import lack_of
        from attnctl.warming.batches import run_once

        plan = self._plan(job)
        # a plan passes over what it cannot run, so that the batches would run with something else
        lack = lack_of(job.backend, job.knobs, job.kernel, self._registry, job.shape)
        if lack:
            raise InputError(lack)
        before = self._count.now()
        for load in job.loads:
            run_once(plan, load, self._device)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return self._count.since(before, len(job.loads))

    def _plan(self, job: Job) -> LayerPlan:
        from attnctl.layer import Options
        from attnctl.plans.opening import plan
        from attnctl.profile.layers import spec_of_shape

        found = self._plans.get((job.shape, job.block_size))
        if found is None:
            begin = self._begin
            spec = spec_of_shape(job.shape)
            whole = plan(
                spec,
                begin.machine,
                profile=begin.profile,
                options=Options(block_size=job.block_size),
                device=begin.device,
                registry=self._registry,
            )
            found = self._plans[job.shape, job.block_size] = whole[0]
        return found


class Count:
    """What Triton and the C++ compiler have made in this process so far."""

    def __init__(self) -> None:
        self._compiled: list[str] = []
        self._found = 0
        try:
            import triton
        except ImportError:
            return
        triton.knobs.compilation.listener = self._heard

    def _heard(self, *, src: Any, cache_hit: bool, **_: Any) -> None:
        if cache_hit:
            self._found += 1
        else:
            self._compiled.append(str(getattr(src, "name", "a kernel")))

    def now(self) -> tuple[int, int, frozenset[str]]:
        return len(self._compiled), self._found, _shared_objects()

    def since(self, before: tuple[int, int, frozenset[str]], ran: int) -> Made:
        compiled, found, built = before
        return Made(
            compiled=tuple(self._compiled[compiled:]),
            found=self._found - found,
            built=tuple(sorted(_shared_objects() - built)),
            ran=ran,
        )


def _shared_objects() -> frozenset[str]:
    from attnctl.kernels.cpu.build_folders import cache_folder

    folder = cache_folder(os.environ)
    if folder is None:
        return frozenset()
    # one that is being built has a longer name
    return frozenset(path.name for path in folder.glob("*.so") if _BUILT.search(path.name))


if __name__ == "__main__":
    sys.exit(main())
