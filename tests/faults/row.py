"""One row of the table of faults, and what can be done to a process before it starts."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.commands.running import ROOT

PLUGINS = ROOT / "tests" / "plugins"
LIMIT_S = 150


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Place:
    """Where a row runs: a folder of its own, and an environment with nobody's settings.

    prefix: what a shell does before the program takes its place; redirected: what it appends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": f"{folder}/data"}
        for name in ("ATTNCTL_PROFILE", "ATTNCTL_DEBUG", "COLUMNS", "LINES"):
            self.environ.pop(name, None)
        self.prefix = ""
        self.redirected = ""
        self.stdin = b""

    def command(self, line: str, module: str = "attnctl") -> list[str]:
        """The program with these words; {here} is the folder, {root} the checkout."""
        words = shlex.split(line.format(here=self.folder, root=ROOT))
        shell = f'{self.prefix} exec "$@" {self.redirected}'
        return ["/bin/sh", "-c", shell, "sh", sys.executable, "-m", module, *words]

    def start(self, line: str, module: str = "attnctl") -> subprocess.Popen[bytes]:
        """The program, with every signal as it is at a prompt.

        A job in the background ignores interrupts, and one under nohup the end of its terminal;
        what is handled here is back at its default in a child.
        """
        kept = {
            number: signal.signal(number, signal.default_int_handler)
            for number in (signal.SIGINT, signal.SIGHUP)
        }
        try:
            return subprocess.Popen(
                self.command(line, module),
                cwd=self.folder,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def ended(self, process: subprocess.Popen[bytes]) -> Ended:
        try:
            out, err = process.communicate(self.stdin, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return Ended(process.returncode, out.decode("utf-8", "replace"), err.decode())

    def files(self) -> dict[str, bytes]:
        """Every small file below the folder, but for what Python compiles beside its modules."""
        paths = (p for p in self.folder.rglob("*") if p.is_file() and p.suffix != ".pyc")
        small = (path for path in paths if path.stat().st_size < 1 << 26)
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in small}


def once(place: Place, line: str) -> Ended:
    """The program runs, and is left to itself."""
    return place.ended(place.start(line))


Given = Callable[[Place], None]


class Row(NamedTuple):
    """A fault, the command that meets it, what is said of it, and the exit code.

    says: a part of the one sentence on standard error; of an answer (exit code 0 or 1) a part of
    that; "" for silence. leaves: files that may be there afterwards and were not, or have changed.
    answered: the answer is whole, and the fault came after it.
    """

    fault: str
    line: str
    says: str
    code: int = 2
    given: tuple[Given, ...] = ()
    leaves: tuple[str, ...] = ()
    run: Callable[[Place, str], Ended] = once
    answered: bool = False


def file(name: str, data: bytes | str | Path) -> Given:
    """A file in the row's folder: its bytes, its text, or a copy."""

    def write(place: Place) -> None:
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, Path):
            data_ = data.read_bytes()
        else:
            data_ = data.encode() if isinstance(data, str) else data
        path.write_bytes(data_)

    return write


def sparse(name: str, size: int = 1 << 30) -> Given:
    """A file that says it is that large, and takes no room."""

    def write(place: Place) -> None:
        with (place.folder / name).open("wb") as opened:
            opened.truncate(size)

    return write


def folder(name: str) -> Given:
    return lambda place: (place.folder / name).mkdir(parents=True)


def environ(changes: Mapping[str, str | None]) -> Given:
    """Variables, with {here} for the folder; None takes one away."""

    def change(place: Place) -> None:
        for name, value in changes.items():
            place.environ.pop(name, None)
            if value is not None:
                place.environ[name] = value.format(here=place.folder, root=ROOT)

    return change


def shell(prefix: str = "", redirected: str = "", stdin: bytes = b"") -> Given:
    """Limits and redirections, in the shell's words; what comes in on standard input."""

    def change(place: Place) -> None:
        place.prefix += prefix.format(here=place.folder)
        place.redirected += redirected.format(here=place.folder)
        place.stdin += stdin

    return change


def limited_files(blocks: int) -> Given:
    """No file grows beyond so many blocks of 512 bytes, as on a disk that is full."""
    # some Pythons leave half a compiled module behind there, which every later start would trip on
    return shell(f"ulimit -f {blocks}; export PYTHONDONTWRITEBYTECODE=1;")


@cache
def _shim(built: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "these tests compile a small library: install a C compiler"
    source = Path(__file__).parent / "shim.c"
    words = [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", str(built), str(source), "-ldl"]
    subprocess.run(words, check=True)
    return built


def machine(
    files: Mapping[str, str] | None = None,
    *,
    links: Mapping[str, str] | None = None,
    denied: str = "",
    frozen: str = "",
) -> Given:
    """Another system around the process, by the C library's own calls: tests/faults/shim.c.

    files: path -> text, in the place of the system's; links: path -> where it leads. denied,
    frozen: folders, with colons between, that may not be read, that may not be written.
    """

    def build(place: Place) -> None:
        root = place.folder / "system"
        for path, text in (files or {}).items():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).write_text(text)
        for path, target in (links or {}).items():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).symlink_to(target)
        place.environ |= {
            "LD_PRELOAD": str(_shim(place.folder.parent / "faults-shim.so")),
            "FAULTS_ROOT": str(root),
            "FAULTS_DENY": denied.format(here=place.folder),
            "FAULTS_FROZEN": frozen.format(here=place.folder),
        }

    return build


def library(name: str, text: str) -> Given:
    """A Python module that is found before any other of its name."""

    def write(place: Place) -> None:
        (place.folder / "modules").mkdir(exist_ok=True)
        (place.folder / "modules" / f"{name}.py").write_text(text)
        place.environ["PYTHONPATH"] = f"{place.folder / 'modules'}:{ROOT}"

    return write


def plugins(place: Place) -> None:
    """The backends with planted faults are installed."""
    place.environ["PYTHONPATH"] = f"{PLUGINS}:{ROOT}"
