"""What is warmed, and what came of it, as plain values that go between processes. No torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.exits import Exit
from attnctl.machine import Machine
from attnctl.profile.values import Profile, Shape
from attnctl.tune.workload import Load

Status = Literal["ready", "error", "crashed", "timeout"]


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A child's first line. device: of the machine; place: torch's name of it.

    profile: its path, or what was read there.
    """

    machine: Machine
    device: int
    place: str
    profile: str | Profile


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of one layer shape, on the batches that it serves.

    setting: knobs and kernel in words. block_size: of the cache, where it is not the one that the
    profile asks for by itself.
    """

    shape: Shape
    backend: str
    setting: str
    loads: tuple[Load, ...]
    knobs: dict[str, int | str | bool] = {}
    kernel: str = ""
    block_size: int | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a job.

    compiled: names of the kernels that were compiled, one for each variant; found: variants that
    the cache held already; built: shared objects that the C++ compiler made. ran: batches.
    """

    status: Status = "ready"
    detail: str = ""
    compiled: tuple[str, ...] = ()
    found: int = 0
    built: tuple[str, ...] = ()
    ran: int = 0
    seconds: float = 0.0


class Warmed(msgspec.Struct, frozen=True, kw_only=True):
    """A job and what came of it."""

    shape: str
    backend: str
    setting: str
    made: Made


class WarmReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run. compiled, found, built: over all jobs. exit_code 1 where a job failed."""

    schema: str = "attnctl.warm/1"
    profile: str
    device: str
    jobs: tuple[Warmed, ...]
    compiled: int
    found: int
    built: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> Exit:
        return Exit.NO if any(one.made.status != "ready" for one in self.jobs) else Exit.OK
