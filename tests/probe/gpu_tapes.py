"""Machines of tests/machines as hosts, changed where a test says so."""

from pathlib import Path

from attnctl.probe import pci
from attnctl.probe.tape import Recorder, Replay, Tape, read_tape, tape_of

MACHINES = Path(__file__).parent.parent / "machines"


def machine(name, **changes):
    """The host of one tape. changes: `answers` by question; a HostError is raised."""
    tape = read_tape((MACHINES / f"{name}.tape.json").read_bytes(), name)
    entries = {repr(entry.ask): entry for entry in tape.entries}
    for entry in tape_of(changes.get("answers", {})).entries:
        entries[repr(entry.ask)] = entry
    return Replay(Tape(tape.schema, list(entries.values()), tape.default))


def probed(probe, host):
    """(vendor, facts, findings by code) of one vendor's part of the probe."""
    vendor, facts, findings = probe(host, pci.scan(host))
    return vendor, facts, {finding.code: finding for finding in findings}


def children_asked(probe, host):
    """The names of the children that a part of the probe started."""
    recorder = Recorder(host)
    probe(recorder, pci.scan(recorder))
    return [entry.ask[1] for entry in recorder.tape().entries if entry.ask[0] == "child"]


def value(answer):
    return {"value": answer}


def refused(name="NVMLError_NotSupported", text="Not Supported"):
    return {"error": f"{name}: {text}"}


def changed_gpu(name, child, **fields):
    """The machine with some fields of the first GPU of one child's answer changed."""
    answer = machine(name).ask("child", child)
    first = answer["gpus"][0] | fields
    return machine(name, answers={("child", child): answer | {"gpus": [first]}})
