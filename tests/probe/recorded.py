"""The recorded and invented machines of tests/machines, and what goes wrong inside a probe."""

from pathlib import Path

from attnctl.probe import probe
from attnctl.probe.tape import Replay, read_tape

ROOT = Path(__file__).parents[2]

TAPES = sorted((ROOT / "tests" / "machines").glob("*.tape.json"))


def tape(name):
    return read_tape((ROOT / "tests" / "machines" / f"{name}.tape.json").read_bytes(), name)


def machine(name):
    return probe(Replay(tape(name)))


def complaints(found):
    return [finding for finding in found.findings if finding.code == "probe.internal"]
