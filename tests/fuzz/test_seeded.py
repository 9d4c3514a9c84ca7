"""Two thousand seeded inputs through the commands; `make fuzz` runs a hundred thousand."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import ROOT, Answer, run
from tests.fuzz.corpus import Corpus
from tests.fuzz.lines import KINDS, Line, Lines
from tests.fuzz.run import SEED, Fault, broken_rules, fuzz

INPUTS = 2000
PART = 250


def told(faults: list[Fault]) -> str:
    lines = (f"--seed {SEED} --first {f.number}: {f.line.words}: {f.why}" for f in faults)
    return "\n".join(lines)


@pytest.mark.parametrize("first", range(0, INPUTS, PART))
def test_no_damaged_input_gives_a_traceback_or_takes_for_ever(tmp_path: Path, first: int) -> None:
    """Exit codes 0, 1 and 2, one sentence for a 2, bounded time and memory for each."""
    tally = fuzz(SEED, first, PART, tmp_path)
    assert not tally.faults, told(tally.faults)
    assert sum(tally.codes.values()) == PART
    assert {0, 1, 2} == set(tally.codes)


@pytest.mark.parametrize("kind", [kind for kind in vars(Corpus) if kind in KINDS])
def test_what_is_damaged_reads_as_it_was(tmp_path: Path, kind: str) -> None:
    """Each kind of document is answered without a 2 in some form, so that damage is what is met."""
    lines, codes = Lines(tmp_path), set()
    for number in range(40):
        line = KINDS[kind][1](lines, random.Random(number))
        codes.add(run(*line.words, width=line.width).code)
    assert 2 in codes
    # a workload is read for a device that is not there, so that nothing is measured
    assert codes & {0, 1} or kind == "workload"


def test_a_run_that_is_interrupted_says_where_it_goes_on() -> None:
    """Between two inputs, so that none is left out; the number of the next, and exit code 130."""
    run_ = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.run", "--first", "40", "--inputs", "99999"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run_.stdout is not None
    assert run_.stdout.readline() == f"seed {SEED}, inputs 40 to 100038\n"
    run_.send_signal(signal.SIGINT)
    said = run_.communicate(timeout=60)[0]
    found = re.fullmatch(
        rf"ended after (\d+) inputs; the rest: --seed {SEED} --first (\d+) --inputs (\d+)\n", said
    )
    assert found is not None, said
    done, first, left = map(int, found.groups())
    assert (run_.returncode, first, left) == (130, 40 + done, 99_999 - done)


def test_no_input_runs_kernels(tmp_path: Path) -> None:
    """A smoke that names its backends lists cases, and a tune is of a device that is not there."""
    lines = Lines(tmp_path)
    for number in range(4000):
        words = set(KINDS["words"][1](lines, random.Random(number)).words)
        if "smoke" in words:
            assert "--list" in words or not {"--all", "--backend", "--self-test"} & words, words
        assert not {"warm", "report"} & words or "--help" in words


def test_an_input_comes_again_by_its_number(tmp_path: Path) -> None:
    """The run's seed and the number make the same line and the same bytes, alone too."""
    lines = [Lines(tmp_path / name) for name in ("a", "b")]
    for one in ("a", "b"):
        (tmp_path / one).mkdir()
    for number in (3, 77, 1203):
        made = [one.make(random.Random(f"{SEED}:{number}")) for one in lines]
        assert len({str(line.words).replace("/b/", "/a/") for line in made}) == 1
        assert len({line.file.read_bytes() if line.file else b"" for line in made}) == 1


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (Answer(3, "", ""), "exit code 3"),
        (Answer(2, "", "attnctl: this is a bug in attnctl (E: x)\n"), "nobody foresaw"),
        (Answer(1, "\x1b[31m", ""), "an escape"),
        (Answer(2, "half", "attnctl: no\n"), "beside an answer"),
        (Answer(2, "", "attnctl: one\nattnctl: two\n"), "without one sentence"),
        (Answer(2, "", "no name\n"), "without one sentence"),
        (Answer(0, "{", ""), "no JSON"),
    ],
)
def test_every_rule_is_broken_by_something(answer: Answer, rule: str) -> None:
    """The judge sees each kind of fault, and none in a good answer."""
    line = Line(("probe", "--json"))
    assert rule in "; ".join(broken_rules(line, answer))
    assert not list(broken_rules(line, Answer(0, "{}", "")))
    assert not list(broken_rules(line, Answer(2, "", "attnctl: no\n")))
