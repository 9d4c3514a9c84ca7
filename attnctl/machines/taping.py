"""Files of the probe: machines to select for elsewhere, and tapes to probe again elsewhere."""

from __future__ import annotations

from attnctl.documents.files import as_json, read_bytes
from attnctl.machine import Machine
from attnctl.probe import probe
from attnctl.probe.host import Host
from attnctl.probe.realhost import RealHost
from attnctl.probe.redact import redact_machine, redact_tape
from attnctl.probe.tape import Recorder, Replay, read_tape, write_tape


def machine_file(machine: Machine) -> bytes:
    """The bytes of a machine file: it decides as this machine does, and names nobody."""
    return as_json(redact_machine(machine))


def probe_recorded(host: Host | None = None) -> tuple[Machine, bytes]:
    """The machine, and a tape's bytes of every question and answer, names struck out."""
    recorder = Recorder(RealHost() if host is None else host)
    machine = probe(recorder)
    return machine, write_tape(redact_tape(recorder.tape()))


def replay_of(path: str) -> Host:
    """The host that answers as the tape in that file does."""
    return Replay(read_tape(read_bytes(path, "tape"), path))
