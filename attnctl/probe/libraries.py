"""The copies of each library of the GPU stacks: on the disk, and in the memory of processes.

Only names and links are read, never a library itself. A program may bring a path of its own for a
library (torch's wheels do); what a running process took stands in its memory map.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.findings import Finding, unmet
from attnctl.machines.libraries import Copy, Libraries, Place, Process
from attnctl.probe.host import Host, HostError, env, names_in, site_dirs, table
from attnctl.probe.library_names import is_soname, library_of, version_of
from attnctl.probe.memory_maps import Maps, read_maps

# beside site-packages: wheels of one library each, ROCm's and oneAPI's, Triton's, torch's own
_OF_PACKAGES = ("torch/lib", "triton/backends/nvidia/lib", "_rocm_sdk_core/lib")
_TOOLKITS = (("CUDA_HOME", "/usr/local/cuda", "lib64"), ("ROCM_PATH", "/opt/rocm", "lib"))


def probe_libraries(host: Host, pid: int | None = None) -> Libraries:
    """All copies by library, those that processes loaded marked.

    pid: only this process; else all whose memory maps this user may read. HostError: that one
    process is not there, or is another user's.
    """
    found = _Found(host)
    for place, folder, names in _folders(host):
        for name in names:
            found.add(place, f"{folder}/{name}", name)
    for name, path in sorted(_cache(host).items()):
        found.add("system", path, name)
    maps = read_maps(host, pid)
    found.load(maps)
    copies = tuple(sorted(found.copies.values(), key=lambda one: (one.library, one.path)))
    return Libraries(
        copies=copies,
        processes=tuple(Process(pid=number, name=maps.names[number]) for number in maps.files),
        not_asked=maps.not_asked,
        findings=tuple(_findings(copies, maps)),
    )


class _Found:
    """The copies so far, by path with links followed; and for which names one was taken."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.copies: dict[str, Copy] = {}
        self._taken: set[str] = set()

    def add(self, place: Place, path: str, name: str) -> None:
        library = library_of(name)
        if not library:
            return
        real = _real(self.host, path)
        copy = self.copies.get(real) or Copy(
            library=library, path=real, version=version_of(real) or version_of(name), place=place
        )
        by_name = place in ("LD_LIBRARY_PATH", "system") and is_soname(name)
        if by_name and name not in self._taken:
            self._taken.add(name)
            copy = msgspec.structs.replace(copy, taken_for=(*copy.taken_for, name))
        self.copies[real] = copy

    def load(self, maps: Maps) -> None:
        for pid, files in maps.files.items():
            for path in files:
                self.add("process", path, path.rpartition("/")[2])
                real = _real(self.host, path)
                copy = self.copies[real]
                loaded = msgspec.structs.replace(copy, loaded_by=(*copy.loaded_by, pid))
                self.copies[real] = loaded


def _real(host: Host, path: str) -> str:
    """The path with its links followed; as it is where nobody can say."""
    try:
        real = host.ask("real", path)
    except HostError:
        return path
    return real if isinstance(real, str) else path


def _folders(host: Host) -> Iterator[tuple[Place, str, tuple[str, ...]]]:
    """(place, folder, names in it), in the order of a search by name."""
    for folder in (_variable(host, "LD_LIBRARY_PATH") or "").split(":"):
        if folder.startswith("/"):
            yield "LD_LIBRARY_PATH", folder.rstrip("/"), _names(host, folder)
    try:
        sites = site_dirs(host)
    except HostError:
        sites = ()
    for site in sites:
        for folder in _package_folders(host, site):
            yield "python", folder, _names(host, folder)
    for variable, usual, below in _TOOLKITS:
        folder = f"{_variable(host, variable) or usual}/{below}"
        yield "toolkit", folder, _names(host, folder)


def _package_folders(host: Host, site: str) -> Iterator[str]:
    names = _names(host, site)
    # what auditwheel puts beside a package that it repaired
    yield from (f"{site}/{name}" for name in names if name.endswith(".libs"))
    for known in _OF_PACKAGES:
        if known.partition("/")[0] in names:
            yield f"{site}/{known}"
    if "nvidia" in names:
        yield from (f"{site}/nvidia/{name}/lib" for name in _names(host, f"{site}/nvidia"))
    yield from (f"{site}/{name}/lib" for name in names if name.startswith("_rocm_sdk_libraries"))
    # oneAPI's wheels put theirs into the environment's own lib
    base, lib, rest = site.rpartition("/lib/")
    if lib and rest.startswith("python"):
        yield f"{base}/lib"


def _variable(host: Host, name: str) -> str | None:
    try:
        return env(host, name)
    except HostError:
        return None


def _names(host: Host, folder: str) -> tuple[str, ...]:
    try:
        return names_in(host, folder)
    except HostError:
        return ()


def _cache(host: Host) -> dict[str, str]:
    """Name -> path, as the loader's own cache has it; empty where there is none."""
    try:
        found = table(host, "loader_cache")
    except HostError:
        return {}
    return {name: path for name, path in found.items() if isinstance(path, str)}


def _findings(copies: tuple[Copy, ...], maps: Maps) -> Iterator[Finding]:
    for pid, files in maps.files.items():
        who = f"process {pid} ({maps.names[pid]})"
        for library in sorted({one.library for one in copies}):
            mine = [one for one in copies if one.library == library and pid in one.loaded_by]
            if len(mine) > 1:
                found = " and ".join(f"{one.path} ({one.version or '?'})" for one in mine)
                yield unmet(
                    "libraries.twice", f"one {library} in {who}", found, f"/proc/{pid}/maps"
                )
        for path in sorted(name for name, gone in files.items() if gone):
            yield unmet(
                "libraries.replaced",
                "the file on the disk is the one that is loaded",
                f"{who} runs a copy of {path} that is no longer there",
                f"/proc/{pid}/maps",
                "start the process again",
            )
