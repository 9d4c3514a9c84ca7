"""One shared object: compiled, kept with its hash behind it, and looked at before it is loaded.

A build goes to a folder of its own and is then renamed, so that builds at the same time do not
meet. Behind a shared object stands its hash: a file that was cut short, by a full disk or a lost
one, is told from a whole one.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from attnctl.kernels.cpu.build_folders import clear

COMPILE_TIMEOUT_S = 300
HASH_BYTES = hashlib.sha256().digest_size
_NO_ROOM = (
    *("No space left on device", "uota exceeded", "Read-only file system"),
    *("File too large", "File size limit exceeded"),
)
"""What compilers, linkers and the system say in English where a file cannot be written."""


class Failure(NamedTuple):
    """cause: what must be another one for the next attempt to do better.

    "full" is a folder as well, in which no compiler will ever do better; "time" is the
    machine's, on which none need be tried.
    """

    text: str
    cause: Literal["compiler", "folder", "full", "time"]


def is_whole(target: Path) -> bool:
    """Whether the file is there as it was made."""
    try:
        text = target.read_bytes()
    except OSError:
        return False
    return len(text) > HASH_BYTES and text[-HASH_BYTES:] == _hash(text[:-HASH_BYTES])


def unloadable(target: Path) -> Failure | None:
    """Why the file cannot be loaded here, None where it can."""
    try:
        ctypes.CDLL(str(target))
    except OSError as error:
        return Failure(f"cannot load the build: {error}", "folder")
    return None


def compiled(
    line: tuple[str, ...],
    sources: Iterable[Path],
    target: Path,
    limit_s: float = COMPILE_TIMEOUT_S,
) -> Failure | None:
    """What went wrong, None where the target is there."""
    clear(target.parent)
    try:
        with tempfile.TemporaryDirectory(
            prefix=target.stem, dir=target.parent, ignore_cleanup_errors=True
        ) as folder:
            made = Path(folder, "made.so")
            return _compiled((*line, *map(str, sources)), made, target, limit_s)
    except subprocess.TimeoutExpired:
        return Failure(f"it had not compiled {target.name} after {limit_s:g} s", "time")
    except OSError as error:
        return Failure(f"cannot write the build: {error}", "full")


def _compiled(line: tuple[str, ...], made: Path, target: Path, limit_s: float) -> Failure | None:
    """OSError: a file could not be written here; TimeoutExpired."""
    try:
        answer = _ran([*line, "-o", str(made)], made.parent, limit_s)
    except OSError as error:
        return Failure(f"{type(error).__name__}: {error}", "compiler")
    if answer.returncode == 0 and made.exists() and made.stat().st_size:
        mark = _hash(made.read_bytes())
        with made.open("ab") as file:
            file.write(mark)
        made.replace(target)
        return None
    said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    full = next((one for one in said if any(words in one for words in _NO_ROOM)), "")
    if full:
        return Failure(f"cannot write the build: {full}", "full")
    why = next((one for one in said if "error" in one), "".join(said[:1]))
    return Failure(why or f"exit status {answer.returncode} and no file", "compiler")


def _ran(line: list[str], folder: Path, limit_s: float) -> subprocess.CompletedProcess[bytes]:
    """A compiler that has ended, with all that it started. TimeoutExpired: it was ended."""
    # what lies between source and object goes where there is room for the object, and what goes
    # wrong is said in one language
    environ = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    with subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=limit_s)[1]
        except BaseException:
            # the command only starts the compiler, which would go on without it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(line, process.returncode, stderr=said)


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
