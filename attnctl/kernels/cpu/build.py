"""The shared object of a C++ source: from the cache, or made by the system's compiler.

The cache is keyed by the source, the flags and the compiler's version; a build goes to a name of
its own and is then renamed, so that builds at the same time do not meet. Behind a shared object
stands its hash: a file that was cut short, by a full disk or a lost one, is made anew.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from attnctl.findings import Finding, met, unmet
from attnctl.probe.host import Host, HostError, env

CODE = "cpu_kernel"
WANTED = "the C++ kernel, built by the system's compiler"

COMPILE_TIMEOUT_S = 300
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


def compilers(environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Commands to try, CC first; only those that the PATH has."""
    wanted = [_words(environ.get("CC", "")), ("cc",), ("gcc",), ("clang",)]
    path = environ.get("PATH", os.defpath)
    found = [(shutil.which(command[0], path=path), command[1:]) for command in wanted if command]
    return list(dict.fromkeys((first, *rest) for first, rest in found if first))


def _words(command: str) -> tuple[str, ...]:
    """A command as a shell takes it apart; none where its quotes do not end."""
    try:
        return tuple(shlex.split(command))
    except ValueError:
        return ()


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The first folder that can be written and that no other user can write to."""
    return next(iter(cache_folders(environ)), None)


def cache_folders(environ: Mapping[str, str]) -> list[Path]:
    """The folders that can be written and that no other user can write to, the best one first."""
    choices = []
    cache, home = Path(environ.get("XDG_CACHE_HOME", "")), Path(environ.get("HOME", ""))
    # the specification has a relative path ignored
    if cache.is_absolute():
        choices.append(cache / "attnctl")
    elif home.is_absolute():
        choices.append(home / ".cache" / "attnctl")
    temporary = environ.get("TMPDIR") or tempfile.gettempdir()
    choices.append(Path(temporary) / f"attnctl-{os.geteuid()}")
    return [folder for folder in dict.fromkeys(choices) if _usable(folder)]


def build_here(host: Host, source: Path) -> Built:
    """The shared object of `source` for this machine's usable instructions."""
    from attnctl.probe.cpu import probe_cpu
    from attnctl.probe.ledger import Ledger

    cpu = probe_cpu(host, Ledger())
    names = ("CC", "PATH", "XDG_CACHE_HOME", "HOME", "TMPDIR")
    flags = isa_flags(cpu.arch, cpu.isa)
    return build(source, flags, _environ(host, names), f"{cpu.arch} {cpu.model} {cpu.isa}")


def build(
    source: Path, flags: tuple[str, ...], environ: Mapping[str, str], processor: str = ""
) -> Built:
    """The shared object of `source`; each compiler is tried with these flags, then with fewer.

    processor: what flags like -mcpu=native mean, where a home is shared by several.
    """
    commands = compilers(environ)
    if not commands:
        return _failed("there is no compiler: CC, cc, gcc and clang were looked for")
    folders = cache_folders(environ)
    if not folders:
        return _failed("no folder for the build can be written", "set XDG_CACHE_HOME")
    text, problem = _text(source), ""
    for command in commands:
        version = _version(command)
        # without OpenMP it runs on one thread; without the instruction flags it is slow and right
        for extra in dict.fromkeys(((*flags, "-fopenmp"), ("-fopenmp",), flags, ())):
            line = (*command, *_FLAGS.split(), *extra)
            name = f"{source.stem}-{_key(text, line, version, processor)}.so"
            said = f"{version or command[0]}, {' '.join(extra) or 'no flags'}"
            for folder in folders:
                target = folder / name
                if _whole(target) and not _unloadable(target):
                    return Built(str(target), met(CODE, WANTED, said, str(target)), cached=True)
                failure = _compile(line, source, target)
                place = failure.startswith(PLACE)
                if not failure:
                    failure = _unloadable(target)
                    place = bool(failure)
                if not failure:
                    return Built(str(target), met(CODE, WANTED, said, str(target)))
                problem = problem or f"{' '.join(command)}: {failure}"
                if not place:  # another folder would not help
                    break
    return _failed(problem)


PLACE = "cannot write the build"
"""How a failure begins that is the folder's and not the compiler's."""


def _whole(target: Path) -> bool:
    """Whether the file is there as it was made."""
    try:
        text = target.read_bytes()
    except OSError:
        return False
    return len(text) > HASH_BYTES and text[-HASH_BYTES:] == _hash(text[:-HASH_BYTES])


HASH_BYTES = hashlib.sha256().digest_size


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _unloadable(target: Path) -> str:
    """Why the file cannot be loaded here (a folder without leave to execute), "" where it can."""
    try:
        ctypes.CDLL(str(target))
    except OSError as error:
        return f"{PLACE}: {error}"
    return ""


def _text(source: Path) -> bytes:
    """The source and the files beside it that it includes: what a build depends on."""
    text = source.read_bytes()
    beside = [source.with_name(name.decode()) for name in _INCLUDE.findall(text)]
    return b"\0".join([text, *(path.read_bytes() for path in beside)])


def _environ(host: Host, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            value = env(host, name)
        except HostError:
            continue
        if value is not None:
            found[name] = value
    return found


def _failed(found: str, fix: str = "install gcc or clang, or set CC to a compiler") -> Built:
    return Built(None, unmet(CODE, WANTED, found, "the system's compiler", fix))


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError:
        return False
    shared = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # what lies here is loaded as code: it must be this user's alone
    return state.st_uid == os.geteuid() and not shared and os.access(folder, os.W_OK | os.X_OK)


def _version(command: tuple[str, ...]) -> str:
    try:
        answer = subprocess.run(
            [*command, "--version"], capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = answer.stdout.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if lines else ""


def _key(text: bytes, line: tuple[str, ...], version: str, processor: str) -> str:
    parts = [text, *(part.encode() for part in line), version.encode(), processor.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _compile(line: tuple[str, ...], source: Path, target: Path) -> str:
    """What went wrong, "" where the target is there."""
    try:
        handle, name = tempfile.mkstemp(suffix=".so", prefix=target.stem, dir=target.parent)
        os.close(handle)
    except OSError as error:
        return f"{PLACE}: {error}"
    made = Path(name)
    try:
        answer = subprocess.run(
            [*line, "-o", name, str(source)],
            capture_output=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if answer.returncode == 0 and made.stat().st_size:
            return _keep(made, target)
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        full = next((line for line in said if os.strerror(errno.ENOSPC) in line), "")
        if full:
            return f"{PLACE}: {full}"
        return next((line for line in said if "error" in line), "".join(said[:1])) or (
            f"exit status {answer.returncode} and no file"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        made.unlink(missing_ok=True)


def _keep(made: Path, target: Path) -> str:
    """Puts a build in its place with its hash behind it; what went wrong."""
    try:
        mark = _hash(made.read_bytes())
        with made.open("ab") as file:
            file.write(mark)
        made.replace(target)
    except OSError as error:
        return f"{PLACE}: {error}"
    return ""
