"""What smoke says of one backend and one case, and what the worker and its parent exchange."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from attnctl.compiling.report import Amount, Count, Launched
from attnctl.findings import Finding
from attnctl.ops.compare import Comparison

Status = Literal["pass", "wrong", "error", "crashed", "timeout", "unsupported", "unknown"]

BAD: frozenset[str] = frozenset({"wrong", "error", "crashed", "timeout"})

Level = Literal["none", "import", "compile", "interpret", "device"]
"""What a run proved: nothing, that the kernels import, that they compile for a target, that their
algebra is right in Triton's interpreter, that they are right on the device itself."""


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker's first line: ready for cases, or why it never will be.

    building: not yet; a C++ kernel is being built first, which is no part of any case's time.
    """

    ok: bool
    detail: str = ""
    building: bool = False
    torch: str = ""
    triton: str = ""


Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""In 10^9 a second: a thousand times what the largest device does is a slip of its file."""


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """What a device does at most, as measured beside a run that times.

    read_gbps: 10^9 bytes a second that a reduction reads. matrix_gflops: 10^9 operations a second
    of a large product, in bfloat16 on a GPU and float32 on a processor. cache_bytes: of the
    last-level cache. torch, triton, driver: versions, "" where there is none. hardware: the name of
    what was measured, "" in older reports.
    """

    device: str
    read_gbps: Rate
    matrix_gflops: Rate
    cache_bytes: Count = 0
    torch: str = ""
    triton: str = ""
    driver: str = ""
    hardware: str = ""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long the case's call takes, and how near that is to what the device can do.

    median_us, iqr_us: over `runs` samples, the calls in turns over `copies` of all tensors. clock:
    "wall", "process" (one thread's processor time), "events" (a GPU's stream), "graph" (those
    around replays of a CUDA graph) or "queue" (those around calls that the GPU found enqueued).
    bytes, flops: the least that the case needs. gbps, gflops: those over the time. floor_us: the
    longer of the two at the device's ceilings, bound: which one it is; share: floor over time.
    """

    median_us: float
    iqr_us: float
    runs: Count
    copies: Count
    clock: str
    bytes: Amount = 0.0
    flops: Amount = 0.0
    gbps: Amount = 0.0
    gflops: Amount = 0.0
    floor_us: Amount = 0.0
    bound: Literal["", "memory", "arithmetic"] = ""
    share: Amount = 0.0


class Trial(msgspec.Struct, frozen=True):
    """One case on one backend.

    reasons: the unmet rules of an unsupported case. launches: what was compiled for the case.
    timing: of a case that passed, where times were asked for and the device itself ran it.
    note: of the first case, what stood in for the backend's own kernels, and why.
    """

    case: str
    status: Status
    seconds: Amount = 0.0
    detail: str = ""
    comparison: Comparison | None = None
    reasons: tuple[Finding, ...] = ()
    launches: tuple[Launched, ...] = ()
    timing: Timing | None = None
    note: str = ""


class BackendTrials(msgspec.Struct, frozen=True):
    """Every case of one backend, with what the run proved at most."""

    backend: str
    device: str
    level: Level
    trials: tuple[Trial, ...]

    def count(self, *statuses: str) -> int:
        return sum(trial.status in statuses for trial in self.trials)

    @property
    def bad(self) -> int:
        return self.count(*BAD)

    @property
    def ran(self) -> int:
        return self.count("pass", *BAD)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch, or one case, became since a baseline.

    kernel: "" where it is the case as a whole. what: a field of Launched, "status", "median_us", or
    a field of Ceiling, with neither backend nor case. worse: it fails now, spills more, lost its
    matrix instructions, or is slower.
    """

    target: str
    backend: str
    case: str
    kernel: str = ""
    what: str
    before: str
    after: str
    worse: bool = False


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison with an earlier run. same: cases in both in which nothing changed.

    added, gone: cases of this run alone, and of the earlier one alone on the targets of both.
    slower_percent: where times were compared, by how much one must have changed to count.
    """

    path: str
    torch: str
    triton: str
    driver: str = ""
    slower_percent: float | None = None
    changes: tuple[Change, ...]
    same: int = 0
    added: int = 0
    gone: int = 0

    @property
    def worse(self) -> int:
        return sum(change.worse for change in self.changes)


class SmokeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. exit_code: 0 good; 1 a case is bad, nothing ran, or a baseline was better.

    torch, triton: versions of a cross-compilation. perf: times were asked for; ceilings: of each
    device that they were taken on. options: words of the command line with which one case of this
    run comes back.
    """

    schema: str = "attnctl.smoke/1"
    torch: str = ""
    triton: str = ""
    backends: tuple[BackendTrials, ...]
    perf: bool = False
    ceilings: tuple[Ceiling, ...] = ()
    baseline: Baseline | None = None
    options: tuple[str, ...] = ()
    exit_code: int

    @property
    def compiled(self) -> bool:
        """Whether kernels were compiled for targets, and none run."""
        return any(one.level == "compile" for one in self.backends) or self.triton != ""

    @property
    def ran(self) -> int:
        return sum(backend.ran for backend in self.backends)

    @property
    def bad(self) -> int:
        return sum(backend.bad for backend in self.backends)
