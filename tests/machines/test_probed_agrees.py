"""A probed machine agrees with the bundled file of its kind in every static field."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl.machines import load
from attnctl.machines.differences import static_differences
from attnctl.probe import probe
from attnctl.probe.tape import Replay, read_tape

TAPES = Path(__file__).parent


@pytest.mark.parametrize(
    ("tape", "name"),
    [("h200.tape.json", "h200"), ("zen3-vm.tape.json", "zen3")],
    ids=["H200, recorded on one", "Zen 3, recorded in a virtual machine"],
)
def test_a_recorded_machine_agrees_with_the_bundled_one(tape: str, name: str) -> None:
    """Arch, capability, PCI id, units, memory, shared memory, ISA: nothing static differs."""
    found = probe(Replay(read_tape((TAPES / tape).read_bytes(), tape)))
    assert found.platform == load(name).platform
    assert static_differences(load(name), found) == ()
