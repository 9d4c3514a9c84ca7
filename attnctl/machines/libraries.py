"""Shared libraries of the GPU stacks: which copies lie on the disk, and which a process loaded."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.findings import Finding

SCHEMA = "attnctl.libraries/1"

Place = Literal["LD_LIBRARY_PATH", "system", "python", "toolkit", "process"]


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One file, links followed.

    place: where it was met first: a folder of LD_LIBRARY_PATH, the loader's own cache (system), a
    Python package, the CUDA or ROCm toolkit, or only the memory of a process. taken_for: the names
    for which the loader takes this copy where the caller brings no path of its own. loaded_by:
    numbers of the processes that run it.
    """

    library: str
    path: str
    version: str
    place: Place
    taken_for: tuple[str, ...] = ()
    loaded_by: tuple[int, ...] = ()


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has one of them loaded; name: as the kernel shortens it."""

    pid: int
    name: str = ""


class Libraries(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. not_asked: processes whose memory this user may not look at."""

    schema: str = SCHEMA
    copies: tuple[Copy, ...]
    processes: tuple[Process, ...] = ()
    not_asked: int = 0
    findings: tuple[Finding, ...] = ()
