"""Files of the probe: machines to select for elsewhere, and tapes to probe again elsewhere."""

from __future__ import annotations

import msgspec

from attnctl.files import read_bytes, write_whole
from attnctl.machine import Machine
from attnctl.probe import probe
from attnctl.probe.host import Host
from attnctl.probe.realhost import RealHost
from attnctl.probe.redact import redact_machine, redact_tape
from attnctl.probe.tape import Recorder, Replay, read_tape, write_tape


def save_machine(machine: Machine, path: str) -> None:
    """Writes a machine file: it decides as this machine does, and names nobody."""
    text = msgspec.json.format(msgspec.json.encode(redact_machine(machine)), indent=2)
    write_whole(path, text + b"\n")


def probe_recorded(path: str, host: Host | None = None) -> Machine:
    """The machine, with a tape of every question and answer written to `path`, names struck out."""
    recorder = Recorder(RealHost() if host is None else host)
    machine = probe(recorder)
    write_whole(path, write_tape(redact_tape(recorder.tape())))
    return machine


def probe_replayed(path: str, record: str | None = None) -> Machine:
    """The machine of a tape; `record` writes what was asked of it again, to prune old tapes."""
    replay = Replay(read_tape(read_bytes(path), path))
    return probe(replay) if record is None else probe_recorded(record, replay)
