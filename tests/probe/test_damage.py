"""Machines that make no sense: damaged tapes, wild answers, parts that break."""

import random

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.machine import Machine
from attnctl.probe import probe
from attnctl.probe.host import HostError
from attnctl.probe.redact import redact_tape
from attnctl.probe.tape import Entry, Replay, Tape, read_tape
from tests.probe.recorded import TAPES, complaints


class Broken:
    """A host that breaks its promise, in a way that no part expects."""

    def ask(self, op, *args):
        raise ZeroDivisionError(op)


def test_a_part_that_breaks_becomes_a_finding():
    """The others go on, and the finding carries type and text of the exception."""
    found = probe(Broken())
    assert {finding.source for finding in complaints(found)} >= {"cpu", "limits", "os", "packages"}
    assert all("ZeroDivisionError: " in finding.found for finding in complaints(found))
    assert all("--record FILE" in finding.fix for finding in complaints(found))
    assert found.nvidia.status == "unknown"
    assert {package.status for package in found.packages.values()} == {"unknown"}


def test_a_machine_that_answers_nothing_is_all_absent_or_unknown():
    """Every question fails, and every fact says so."""
    for kind in ("absent", "denied", "timeout", "unrecorded"):
        found = probe(Replay.of({}, default=(kind, "nothing here")))
        assert complaints(found) == []
        assert found.platform == "cpu"
        assert found.cpu.isa == ()
        assert "ok" not in {found.facts[f"cpu.{leaf}"].status for leaf in ("isa", "model")}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
KINDS = ["absent", "denied", "timeout", "crashed", "garbled", "failed"]


def garbled(text, seed):
    """A text with pieces cut, doubled and exchanged."""
    lines = text.split("\n")
    for step in range(1 + seed % 4):
        at = (seed >> step) % len(lines)
        line = lines[at]
        cut = (seed >> 3) % (len(line) + 1)
        lines[at] = (line[:cut], line[cut:] * 3, "9" * 5000, "", "\0:\uffff")[seed % 5]
    return "\n".join(lines)


@st.composite
def damaged_tapes(draw):
    before = read_tape(draw(st.sampled_from(TAPES)).read_bytes())
    entries = list(before.entries)
    for at in draw(st.lists(st.integers(0, len(entries) - 1), min_size=1, max_size=6)):
        ask = entries[at].ask
        how = draw(st.integers(0, 3))
        if how == 0:
            entries[at] = Entry(
                ask, error=(draw(st.sampled_from(KINDS)), draw(st.text(max_size=20)))
            )
        elif how == 1 and entries[at].lines is not None:
            text = garbled("\n".join(entries[at].lines), draw(st.integers(0, 1 << 30)))
            entries[at] = Entry(ask, ok=text)
        else:
            entries[at] = Entry(ask, ok=draw(JSON))
    return Tape(before.schema, entries, before.default)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged_tapes())
def test_no_damage_to_a_tape_breaks_the_probe(damaged):
    """Any answer to any question gives a machine that goes to JSON, and no part that broke."""
    found = probe(Replay(damaged))
    assert complaints(found) == []
    assert msgspec.json.decode(msgspec.json.encode(found), type=Machine) == found
    probe(Replay(redact_tape(damaged)))


TEXTS = [
    "",
    "0",
    "1",
    "-1",
    "max",
    "0-3",
    "a:b:c",
    "processor : 0\nflags : avx2",
    "0::/x",
    "9" * 5000,
]
NAMES = [
    "cpu0",
    "index0",
    "torch",
    "triton-3.7.1.dist-info",
    "0000:01:00.0",
    "card0",
    "0",
    "1",
    "..",
]


class Wild:
    """Answers every question with nonsense from a seed: JSON of any shape, or an error."""

    def __init__(self, seed):
        self.seed = seed

    def ask(self, op, *args):
        draw = random.Random(f"{self.seed} {op} {args}")
        if draw.random() < 0.2:
            raise HostError(draw.choice(KINDS), "no")
        return self.thing(draw, 3)

    def thing(self, draw, depth):
        kind = draw.randrange(8 if depth else 5)
        if kind < 2:
            return draw.choice(TEXTS)
        if kind < 5:
            return draw.choice([None, True, 0, -1, 1 << 62, 0.5, "0x10de", "gfx942", "8.0"])
        size = draw.randrange(4)
        if kind < 7:
            return [draw.choice([*NAMES, self.thing(draw, depth - 1)]) for _ in range(size)]
        keys = ["machine", "release", "hwcap", "hwcap2", "gpus", "value", "error", "gid", "groups"]
        return {draw.choice(keys): self.thing(draw, depth - 1) for _ in range(size)}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_no_machine_at_all_breaks_the_probe(seed):
    """Every single answer is nonsense, and the probe still ends with a machine."""
    found = probe(Wild(seed))
    assert complaints(found) == []
    assert msgspec.json.decode(msgspec.json.encode(found), type=Machine) == found
