"""What happens to a program while it runs: signals at a given moment, or another beside it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from attnctl.profile.document import read_profile
from tests.faults.row import Ended, Place

WAIT_S = 120
SOON_S = 15
"""A compiler of C++ kernels that nobody ends takes longer."""


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(happened: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    end = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


def gone(processes: Iterable[psutil.Process]) -> bool:
    """Whether none of them runs any more; one that nobody has waited for runs no more either."""

    def ran(process: psutil.Process) -> bool:
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return all(ran(process) for process in processes)


def sent(number: signal.Signals, ready: Callable[[Place, int], bool]) -> Callable[..., Ended]:
    """Sends a signal once it is time, and sees to it that no child outlives the program."""

    def run(place: Place, line: str) -> Ended:
        process = place.start(line)
        until(lambda: ready(place, process.pid) or process.poll() is not None, "the moment")
        started = children(process.pid)
        assert started or process.poll() is not None or ready is importing
        process.send_signal(number)
        ended = place.ended(process)
        until(lambda: gone(started), "the end of its children", SOON_S)
        return ended

    return run


def importing(place: Place, pid: int) -> bool:
    time.sleep(0.03)
    return True


def has_worker(place: Place, pid: int) -> bool:
    return any("attnctl.smoke.worker" in process.cmdline() for process in children(pid))


def has_compiler(place: Place, pid: int) -> bool:
    return any(process.name().startswith("cc1") for process in children(pid))


def has_child(place: Place, pid: int) -> bool:
    return bool(children(pid))


def has_journal(place: Place, pid: int) -> bool:
    return any((place.folder / "data").rglob("*.journal"))


def has_a_point(place: Place, pid: int) -> bool:
    journals = (place.folder / "data").rglob("*.journal")
    return any(b'"measured"' in path.read_bytes() for path in journals)


def resumed(first: Callable[[Place, str], Ended]) -> Callable[[Place, str], Ended]:
    """The tune goes on after what ended it, and its profile holds every point."""

    def run(place: Place, line: str) -> Ended:
        ended = first(place, line)
        again = place.ended(place.start(f"{line} --resume"))
        assert again.code == 0, again.err
        (path,) = (place.folder / "data").rglob("*.json")
        (entry,) = read_profile(path).entries
        assert len(entry.points) == 2
        assert not list(path.parent.glob("*.journal"))
        return ended

    return run


def both(one: str, other: str) -> Callable[[Place, str], Ended]:
    """Two programs at once; what the profile that both write holds afterwards is the union."""

    def run(place: Place, line: str) -> Ended:
        started = [place.start(line.replace("FILE", name)) for name in (one, other)]
        ended = [place.ended(process) for process in started]
        codes = [end.code for end in ended]
        assert codes[0] == codes[1], ended
        (path,) = place.folder.rglob("data/**/*.json")
        points = [point for entry in read_profile(path).entries for point in entry.points]
        wanted = [_points(place.folder / name) for name in (one, other)]
        assert len(points) == sum(wanted), points
        return Ended(codes[0], ended[0].out + ended[1].out, ended[0].err + ended[1].err)

    return run


def _points(path: Path) -> int:
    document = json.loads(path.read_text())
    if isinstance(document, list):
        return len(document)
    return sum(len(entry["points"]) for entry in document["entries"])


def beside_itself(place: Place, line: str) -> Ended:
    """A second one, once the first has its journal; the first is then told to end."""
    first = place.start(line)
    until(lambda: has_journal(place, first.pid) or first.poll() is not None, "the journal")
    first.send_signal(signal.SIGSTOP)
    ended = place.ended(place.start(f"{line} --resume"))
    first.send_signal(signal.SIGTERM)
    first.send_signal(signal.SIGCONT)
    place.ended(first)
    return ended


def killed(ready: Callable[[Place, int], bool]) -> Callable[[Place, str], Ended]:
    """Killed, so that it cannot tell its worker: that one ends by itself."""

    def run(place: Place, line: str) -> Ended:
        ended = sent(signal.SIGKILL, ready)(place, line)
        assert ended.code == -signal.SIGKILL
        return ended._replace(code=137)  # as a shell says it

    return run
