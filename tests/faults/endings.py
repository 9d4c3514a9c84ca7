"""Faults in the middle of a run: interrupts, kills, workers that flood, and two runs at once."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from attnctl.profile.canonical import encode
from attnctl.profile.document import read_profile
from tests.faults.documents import PROFILE
from tests.faults.row import Ended, Place, Row, file, plugins, shell
from tests.profile.factory import GRID, profile

WAIT_S = 120
HANGING = "paged(queries=4+1,contexts=20+33,window=7)"
SMOKE = f"smoke --backend HANGS --case '{HANGING}'"
SECOND = encode(profile(grid=GRID[5:7])).decode()
PLAIN = "paged(queries=1+1,contexts=3+18)"
TINY = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "torch_dtype": "float32",
    }
)
POINTS = """[
{"phase": "decode", "batch": 1, "context": %d},
{"phase": "decode", "batch": 2, "context": %d}]"""
TUNE = "tune --model {here}/tiny.json --workload {here}/points.json --backend CPU_ATTN --budget 9s"
TUNING = (file("tiny.json", TINY), file("points.json", POINTS % (64, 128)))
LEFT = ("data/attnctl/profiles/",)


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def until(happened: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
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
        until(lambda: gone(started), "the end of its children")
        return ended

    return run


def importing(place: Place, pid: int) -> bool:
    time.sleep(0.03)
    return True


def has_worker(place: Place, pid: int) -> bool:
    return any("attnctl.worker" in process.cmdline() for process in children(pid))


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


def left_alone(place: Place, line: str) -> Ended:
    """Killed, so that it cannot tell its worker: that one ends by itself."""
    ended = sent(signal.SIGKILL, has_worker)(place, line)
    assert ended.code == -signal.SIGKILL
    return ended._replace(code=137)


def killed_while_tuning(place: Place, line: str) -> Ended:
    ended = sent(signal.SIGKILL, has_a_point)(place, line)
    return ended._replace(code=137 if ended.code == -signal.SIGKILL else ended.code)


ENDINGS: tuple[Row, ...] = (
    Row("SIGINT during smoke", SMOKE, "", 130, (plugins,), run=sent(signal.SIGINT, has_worker)),
    Row("SIGTERM during smoke", SMOKE, "", 143, (plugins,), run=sent(signal.SIGTERM, has_worker)),
    Row("SIGHUP during smoke", SMOKE, "", 129, (plugins,), run=sent(signal.SIGHUP, has_worker)),
    Row("SIGKILL during smoke", SMOKE, "", 137, (plugins,), run=left_alone),
    Row(
        "a kernel that hangs",
        f"{SMOKE} --timeout 3",
        "no answer after 3 s",
        1,
        (plugins,),
    ),
    Row(
        "a worker that prints without end",
        f"smoke --backend FLOODS --case '{PLAIN}' --timeout 3",
        "no answer after 3 s",
        1,
        (plugins,),
    ),
    Row(
        "a worker that prints much",
        f"smoke --backend PRINTS --case '{PLAIN}'",
        "1 of 1 cases passed",
        0,
        (plugins,),
    ),
    Row(
        "a worker that crashes",
        f"smoke --backend CRASHES --case '{HANGING}'",
        "SIGSEGV",
        1,
        (plugins,),
    ),
    Row(
        "a full disk, to write what smoke found",
        f"smoke --backend SOUND --case '{PLAIN}' --junit {{here}}/x.xml",
        "x.xml cannot be written: File too large",
        2,
        (plugins, file("x.xml", "kept"), shell("ulimit -f 0;")),
        answered=True,
    ),
    Row(
        "SIGINT during a tune",
        TUNE,
        "with --resume goes on after the last point",
        130,
        TUNING,
        LEFT,
        resumed(sent(signal.SIGINT, has_journal)),
    ),
    Row(
        "SIGTERM during a tune",
        TUNE,
        "with --resume goes on after the last point",
        143,
        TUNING,
        LEFT,
        resumed(sent(signal.SIGTERM, has_journal)),
    ),
    Row(
        "SIGKILL during a tune",
        TUNE,
        "",
        137,
        TUNING,
        LEFT,
        resumed(killed_while_tuning),
    ),
    Row(
        "two tunes that write one profile",
        "tune --model {here}/tiny.json --workload {here}/FILE --backend CPU_ATTN --budget 9s",
        "the profile is",
        0,
        (*TUNING, file("others.json", POINTS % (512, 1024))),
        LEFT,
        both("points.json", "others.json"),
    ),
    Row(
        "two imports that write one profile",
        "profile import {here}/FILE",
        "1 shape",
        0,
        (file("one.json", PROFILE), file("two.json", SECOND)),
        LEFT,
        both("one.json", "two.json"),
    ),
    Row(
        "a tune beside one of the same",
        TUNE,
        "another tune of the same is at work on it",
        2,
        TUNING,
        LEFT,
        beside_itself,
    ),
)
