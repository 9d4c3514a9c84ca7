"""The shared object of a C++ source: from the cache, or made by the system's compiler.

The cache is keyed by the source, the flags and the compiler's version. Of flags and compilers the
best that builds is taken; where no folder has room for a build none would, and none is tried, nor
is another once one has run into its limit of time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from attnctl.findings import Finding, met, unmet
from attnctl.kernels.cpu.build_compilers import compilers, told
from attnctl.kernels.cpu.build_folders import cache_folders, lack_of_room
from attnctl.kernels.cpu.shared_object import (
    COMPILE_TIMEOUT_S,
    compiled,
    is_whole,
    unloadable,
)
from attnctl.probe.host import Host, HostError, env

CODE = "cpu_kernel"
WANTED = "the C++ kernel, built by the system's compiler"

_FLAGS = (
    "-x c++ -std=c++17 -O3 -ffp-contract=fast -fno-exceptions -fno-rtti -fno-math-errno "
    "-fPIC -shared -w"
)

_INCLUDE = re.compile(rb'^#include "([\w.]+)"', re.MULTILINE)

_X86 = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
# GCC's vectors of 64 bytes need all of these to be single instructions
_X86_512 = {
    "avx512f": "-mavx512f",
    "avx512bw": "-mavx512bw",
    "avx512dq": "-mavx512dq",
    "avx512vl": "-mavx512vl",
}


class Built(msgspec.Struct, frozen=True):
    """path: the shared object, None where nothing could be built; cached: it was there already."""

    path: str | None
    finding: Finding
    cached: bool = False


def isa_flags(arch: str | None, isa: Iterable[str]) -> tuple[str, ...]:
    """The compiler's flags for instructions that the probe found usable, and no others."""
    isa = frozenset(isa)
    if arch == "x86_64":
        flags = tuple(flag for name, flag in _X86.items() if name in isa)
        wide = isa.issuperset(_X86_512) and isa.issuperset(_X86)
        return flags + (tuple(_X86_512.values()) if wide else ())
    if arch == "aarch64":
        return ("-mcpu=native",)
    return ()


def compiler_environ(host: Host) -> dict[str, str]:
    """Of the environment what a build depends on: the compilers, and where it is kept."""
    found = {}
    for name in ("CC", "PATH", "XDG_CACHE_HOME", "HOME", "TMPDIR"):
        try:
            value = env(host, name)
        except HostError:
            continue
        if value is not None:
            found[name] = value
    return found


def build_here(host: Host, source: Path) -> Built:
    """The shared object of `source` for this machine's usable instructions."""
    from attnctl.probe.cpu import probe_cpu
    from attnctl.probe.ledger import Ledger

    cpu = probe_cpu(host, Ledger())
    flags = isa_flags(cpu.arch, cpu.isa)
    return build(source, flags, compiler_environ(host), f"{cpu.arch} {cpu.model} {cpu.isa}")


def build(
    source: Path,
    flags: tuple[str, ...],
    environ: Mapping[str, str],
    processor: str = "",
    limit_s: float = COMPILE_TIMEOUT_S,
) -> Built:
    """The shared object of `source`; each compiler is tried with these flags, then with fewer.

    processor: what flags like -mcpu=native mean, where a home is shared by several. limit_s: of
    one compile; what is there already serves where a first one ran into it, and no other is begun.
    """
    commands = compilers(environ)
    if not commands:
        return _failed("there is no compiler: CC, cc, gcc and clang were looked for")
    unfit = cache_folders(environ)
    folders = [folder for folder, why in unfit.items() if not why]
    rooms = ((folder, lack_of_room(folder)) for folder in folders)
    full = {folder: why for folder, why in rooms if why}
    problem = late = ""
    for line, beside, version, said in _lines(commands, flags) if folders else ():
        text = b"\0".join(map(_text, (source, *beside)))
        name = f"{source.stem}-{_key(text, line, version, processor)}.so"
        for folder in folders:
            target = folder / name
            if is_whole(target) and not unloadable(target):
                return Built(str(target), met(CODE, WANTED, said, str(target)), cached=True)
            if late or folder in full:
                continue
            failure = compiled(line, (source, *beside), target, limit_s) or unloadable(target)
            if failure is None:
                return Built(str(target), met(CODE, WANTED, said, str(target)))
            if failure.cause == "full":
                full[folder] = failure.text
                continue
            if failure.cause == "time":
                late = f"{line[0]}: {failure.text}"
                continue
            problem = problem or f"{line[0]}: {failure.text}"
            if failure.cause == "compiler":  # another folder would not help
                break
    if late:
        return _failed(late, TIME)
    if len(full) < len(folders):
        return _failed(problem)
    whole = "; ".join(f"{folder}: {why}" for folder, why in (unfit | full).items())
    return _failed(f"no folder takes the build: {whole}", ROOM)


ROOM = "make room there, or set XDG_CACHE_HOME to a folder of your own that has some"
TIME = "try again when this machine has less to do, or set CC to another compiler"

CLANG_THREADS = Path(__file__).with_name("clang_threads.cpp")


class _Line(NamedTuple):
    """A command line. beside: what is compiled with the source. said: version and flags."""

    words: tuple[str, ...]
    beside: tuple[Path, ...]
    version: str
    said: str


def _lines(commands: Iterable[tuple[str, ...]], flags: tuple[str, ...]) -> Iterator[_Line]:
    """Command lines from the best one on."""
    for command in commands:
        version, clang, intel = told(command)
        # Clang's driver would bring LLVM's OpenMP beside torch's: the compiler alone is told
        threads = ("-Xclang", "-fopenmp") if clang else ("-fopenmp",)
        # Intel's takes NaN and infinity for what never comes unless it is told otherwise
        fixed = (*(("-fp-model=precise",) if intel else ()), *_FLAGS.split())
        # without OpenMP it runs on one thread; without the instruction flags it is slow and right
        for extra in dict.fromkeys(((*flags, *threads), threads, flags, ())):
            beside = (CLANG_THREADS,) if clang and "-fopenmp" in extra else ()
            said = f"{version or command[0]}, {' '.join(extra) or 'no flags'}"
            yield _Line((*command, *fixed, *extra), beside, version, said)


def _text(source: Path) -> bytes:
    """The source and the files beside it that it includes: what a build depends on."""
    text = source.read_bytes()
    beside = [source.with_name(name.decode()) for name in _INCLUDE.findall(text)]
    return b"\0".join([text, *(path.read_bytes() for path in beside)])


def _failed(found: str, fix: str = "install gcc or clang, or set CC to a compiler") -> Built:
    return Built(None, unmet(CODE, WANTED, found, "the system's compiler", fix))


def _key(text: bytes, line: tuple[str, ...], version: str, processor: str) -> str:
    parts = [text, *(part.encode() for part in line), version.encode(), processor.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]
