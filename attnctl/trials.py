"""What smoke says of one backend and one case, and what the worker and its parent exchange."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.compare import Comparison
from attnctl.findings import Finding

Status = Literal["pass", "wrong", "error", "crashed", "timeout", "unsupported", "unknown"]

BAD: frozenset[str] = frozenset({"wrong", "error", "crashed", "timeout"})

Level = Literal["none", "import", "compile", "interpret", "device"]
"""What a run proved: nothing, that the kernels import, that they compile for a target, that their
algebra is right in Triton's interpreter, that they are right on the device itself."""


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker's first line: ready for cases, or why it never will be."""

    ok: bool
    detail: str = ""
    torch: str = ""


class Trial(msgspec.Struct, frozen=True):
    """One case on one backend. reasons: the unmet rules of an unsupported case."""

    case: str
    status: Status
    seconds: float = 0.0
    detail: str = ""
    comparison: Comparison | None = None
    reasons: tuple[Finding, ...] = ()


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


class SmokeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. exit_code: 0 good; 1 a case is bad, or nothing ran at all."""

    schema: str = "attnctl.smoke/1"
    backends: tuple[BackendTrials, ...]
    exit_code: int

    @property
    def ran(self) -> int:
        return sum(backend.ran for backend in self.backends)

    @property
    def bad(self) -> int:
        return sum(backend.bad for backend in self.backends)
