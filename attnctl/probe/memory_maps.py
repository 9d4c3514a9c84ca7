"""Which files of libraries the processes here have in their memory."""

from __future__ import annotations

from typing import NamedTuple

from attnctl.probe.host import Host, HostError, names_in, read
from attnctl.probe.library_names import library_of

GONE = " (deleted)"
# libraries that any program has; a process with these alone has nothing to do with a GPU
_EVERYBODYS = frozenset({"libstdc++", "libgomp", "libomp", "libiomp5"})


class Maps(NamedTuple):
    """files: process -> {path: whether the file is gone}. not_asked: another user's processes."""

    files: dict[int, dict[str, bool]]
    names: dict[int, str]
    not_asked: int = 0


def read_maps(host: Host, pid: int | None) -> Maps:
    """One process, or all that may be read and have a GPU's or torch's library loaded.

    HostError: the one process that was asked for cannot be read.
    """
    if pid is not None:
        return Maps({pid: _files(read(host, f"/proc/{pid}/maps"))}, {pid: _name(host, pid)})
    files: dict[int, dict[str, bool]] = {}
    not_asked = 0
    for number in _numbers(host):
        try:
            found = _files(read(host, f"/proc/{number}/maps"))
        except HostError as error:  # absent: it has ended since
            not_asked += error.kind == "denied"
            continue
        if {library_of(path.rpartition("/")[2]) for path in found} - _EVERYBODYS:
            files[number] = found
    return Maps(files, {number: _name(host, number) for number in files}, not_asked)


def _numbers(host: Host) -> list[int]:
    try:
        return sorted(int(name) for name in names_in(host, "/proc") if name.isdecimal())
    except HostError:
        return []


def _name(host: Host, pid: int) -> str:
    try:
        return read(host, f"/proc/{pid}/comm").strip()
    except HostError:
        return ""


def _files(text: str) -> dict[str, bool]:
    """Watched files of a memory map: its lines end with the path, and with " (deleted)"."""
    found: dict[str, bool] = {}
    for line in text.splitlines():
        _, slash, rest = line.partition("/")
        path = f"/{rest}"
        gone = path.endswith(GONE)
        path = path.removesuffix(GONE)
        if slash and library_of(path.rpartition("/")[2]):
            found[path] = found.get(path, False) or gone
    return found
