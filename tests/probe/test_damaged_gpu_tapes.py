"""Whatever a library, a file or a damaged tape says, the vendors' parts of the probe end well."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.machine import Vendor
from attnctl.probe import pci
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.host import HostError
from attnctl.probe.rocm import probe_amd
from attnctl.probe.tape import Entry, Replay, Tape, read_tape
from attnctl.probe.xpu import probe_intel
from tests.probe.gpu_tapes import MACHINES

TAPES = {
    name: read_tape((MACHINES / f"{name}.tape.json").read_bytes(), name)
    for name in (
        "h200-mig",
        "gb10",
        "jetson-orin",
        "mi250x",
        "strix-halo",
        "nvidia-a10-and-amd-mi210",
        "arc-a770",
        "max1550",
    )
}
KINDS = ("absent", "denied", "timeout", "crashed", "garbled", "failed", "unrecorded")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["0", "-1", "99999999999999999999", "0x", "gfx", "0000:00:00.0", ":::"])
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def damaged(draw, value):
    """The value, with one place in it replaced by anything."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return value | {key: damaged(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], damaged(draw, value[at]), *value[at + 1 :]]
    return draw(anything)


@st.composite
def damaged_tapes(draw):
    """A tape with up to four entries damaged, failed or gone."""
    tape = TAPES[draw(st.sampled_from(sorted(TAPES)))]
    entries = list(tape.entries)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(entries) - 1))
        entry = entries[at]
        if draw(st.booleans()):
            entries[at] = Entry(entry.ask, error=(draw(st.sampled_from(KINDS)), "damaged"))
        elif entry.lines is not None:
            line = draw(st.integers(0, len(entry.lines) - 1))
            lines = [*entry.lines[:line], draw(st.text(max_size=40)), *entry.lines[line + 1 :]]
            entries[at] = Entry(entry.ask, lines=lines)
        elif entry.error is None:
            entries[at] = Entry(entry.ask, ok=damaged(draw, entry.ok))
    return Tape(tape.schema, entries, draw(st.sampled_from([tape.default, None])))


@given(damaged_tapes())
def test_a_damaged_tape_gives_a_machine_that_goes_to_json(tape):
    """No exception, every finding complete, and the values survive a trip through JSON."""
    host = Replay(tape)
    devices = pci.scan(host)
    for probe in (probe_nvidia, probe_amd, probe_intel):
        vendor, facts, findings = probe(host, devices)
        assert msgspec.json.decode(msgspec.json.encode(vendor), type=Vendor) == vendor
        assert all(fact.source for fact in facts.values())
        assert all(finding.code and finding.wanted and finding.found for finding in findings)
        assert vendor.status == "ok" or vendor.reason


class Refusing:
    """A host on which every question fails in one way."""

    def __init__(self, kind):
        self.kind = kind

    def ask(self, op, *args):
        raise HostError(self.kind, "refused")


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_refuses_everything_is_a_machine_without_gpus(kind):
    """Every kind of error, for every question."""
    host = Refusing(kind)
    assert pci.scan(host) == ()
    for probe in (probe_nvidia, probe_intel):
        assert probe(host, ()) == probe(host, ())
        assert probe(host, ())[0].gpus == ()
    assert probe_amd(host, ())[0].gpus == ()
