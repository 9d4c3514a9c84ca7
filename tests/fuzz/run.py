"""Runs damaged inputs through the commands, in this process: python -m tests.fuzz.run --help.

Each input has a random of its own, seeded by the run's seed and its number, so that any of them
comes again alone: --seed S --first N --inputs 1 --keep FOLDER. A run that was ended says from where
it goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.cli import build
from tests.commands.running import Answer, run
from tests.fuzz.lines import Line, Lines

SEED = 20_261_130
CPU_LIMIT_S = 20.0
"""Of one input: the longest answer, to a config of ten thousand different layers, takes a third."""
WALL_LIMIT_S = 300.0
"""Of one input: what waits for a child costs no processor time of its own."""
GROWTH_LIMIT_BYTES = 400 << 20
"""By how much one input may raise the most memory that this process ever held."""


class TooLong(BaseException):
    """An input took more than CPU_LIMIT_S of this process's time, or WALL_LIMIT_S of anybody's."""


class Fault(NamedTuple):
    """An input whose answer breaks a rule. number: with the seed it makes the input again."""

    number: int
    line: Line
    why: str


class Tally:
    """What a run has seen: faults, answers by exit code, and the dearest inputs."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.codes: Counter[int] = Counter()
        self.longest = (0.0, -1)
        self.largest = (0, -1)


def kept_commands() -> Any:
    """The command line with each command kept once it was loaded: a third of a short run's time."""

    def keeping(group: Any) -> Any:
        load, commands = group.get_command, {}

        def get_command(context: Any, name: str) -> Any:
            if name not in commands:
                found = load(context, name)
                commands[name] = keeping(found) if hasattr(found, "get_command") else found
            return commands[name]

        group.get_command = get_command
        return group

    return keeping(build())


def fuzz(seed: int, first: int, inputs: int, folder: Path, told: Any = None) -> Tally:
    """The tally of that many inputs, made in a folder."""
    tally, lines, app = Tally(), Lines(folder), kept_commands()
    for number in range(first, first + inputs):
        line = lines.make(random.Random(f"{seed}:{number}"))
        before, begin = _most_bytes(), time.process_time()
        code, why = _tried(line, app)
        spent, grown = time.process_time() - begin, _most_bytes() - before
        if number > first and grown > GROWTH_LIMIT_BYTES:  # the first one imports
            why = why or f"{grown >> 20} MiB more than anything before it"
        tally.codes[code] += 1
        tally.longest = max(tally.longest, (spent, number))
        tally.largest = max(tally.largest, (grown if number > first else 0, number))
        if why:
            tally.faults.append(Fault(number, line, why))
        if told is not None:
            told(number, tally)
    return tally


def _tried(line: Line, app: Any) -> tuple[int, str]:
    try:
        with _limited():
            answer = run(*line.words, width=line.width, app=app)
    except TooLong:
        spent = f"{CPU_LIMIT_S:g} s of processor time or {WALL_LIMIT_S:g} s"
        return -1, f"more than {spent}:\n{traceback.format_exc()}"
    except BaseException:
        return -1, traceback.format_exc()
    return answer.code, "; ".join(broken_rules(line, answer))


def broken_rules(line: Line, answer: Answer) -> Iterator[str]:
    """What every answer owes, whatever the input was."""
    code, out, err = answer
    if code not in (0, 1, 2):
        yield f"exit code {code}"
    if "this is a bug" in err or "Traceback" in err:
        yield f"an error that nobody foresaw: {err[:600]}"
    if "\x1b" in out + err:
        yield "an escape that a terminal would obey"
    if code == 2 and "Usage:" not in err:
        if out:
            yield f"exit code 2 beside an answer: {out[:80]!r}"
        if err.count("\n") != 1 or not err.startswith("attnctl: "):
            yield f"exit code 2 without one sentence: {err[:300]!r}"
    if code != 2 and "--json" in line.words and "--help" not in line.words:
        try:
            json.loads(out)
        except ValueError as error:
            yield f"no JSON: {error}"


@contextmanager
def _limited() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TooLong

    limits = (
        (signal.SIGVTALRM, signal.ITIMER_VIRTUAL, CPU_LIMIT_S),
        (signal.SIGALRM, signal.ITIMER_REAL, WALL_LIMIT_S),
    )
    before = [(number, signal.signal(number, end)) for number, _, _ in limits]
    for _, timer, limit_s in limits:
        signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        for _, timer, _ in limits:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Progress:
    """Says what was found so far; after `end` it ends the run, between two inputs."""

    def __init__(self, first: int) -> None:
        self.done = 0
        self._first = first
        self._begin = time.monotonic()
        self._ending = False

    def end(self, *_: object) -> None:
        """A signal's handler: a command that is running would take it for its own."""
        self._ending = True

    def __call__(self, number: int, tally: Tally) -> None:
        for fault in tally.faults[-1:]:
            if fault.number == number:
                print(f"--first {number} --inputs 1: attnctl {fault.line.words}\n  {fault.why}")
        self.done = number + 1 - self._first
        if self.done % 1000 == 0:
            seconds = time.monotonic() - self._begin
            print(f"{self.done} inputs, {len(tally.faults)} faults, {seconds:.0f} s", flush=True)
        if self._ending:
            raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, help="make the inputs here, and leave the last there")
    asked = parser.parse_args()
    os.environ["XDG_DATA_HOME"] = "/nowhere"  # nobody's own profiles are read
    os.environ.pop("ATTNCTL_PROFILE", None)
    progress = Progress(asked.first)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, progress.end)
    print(
        f"seed {asked.seed}, inputs {asked.first} to {asked.first + asked.inputs - 1}", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        if asked.keep is not None:
            asked.keep.mkdir(parents=True, exist_ok=True)
        try:
            tally = fuzz(
                asked.seed, asked.first, asked.inputs, asked.keep or Path(folder), progress
            )
        except KeyboardInterrupt:
            done = progress.done
            rest = f"--first {asked.first + done} --inputs {asked.inputs - done}"
            print(f"ended after {done} inputs; the rest: --seed {asked.seed} {rest}")
            return 130
    print(
        f"{asked.inputs} inputs: exit codes {dict(sorted(tally.codes.items()))}, "
        f"{len(tally.faults)} faults; longest {tally.longest[0]:.2f} s (input {tally.longest[1]}), "
        f"memory grew at most {tally.largest[0] >> 20} MiB (input {tally.largest[1]})"
    )
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
