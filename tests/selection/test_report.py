"""The answer as one value: what table, JSON and exit code are read from."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.machines import load as load_machine
from attnctl.machines.assumed import Assumption, assume
from attnctl.model.spec import ModelSpec
from attnctl.registry import load
from attnctl.selection.answer import answer, answers
from attnctl.selection.report import SelectReport, sweep
from tests import machine_factory
from tests.layer_factory import group

REGISTRY = load()
SPEC = ModelSpec(
    model_type="x",
    groups=(group("full"), group("none", layers=(2,), num_heads=None, head_size=None)),
    dtype="bfloat16",
    dtype_source="dtype",
    used=("num_heads",),
    unknown=("wibble",),
)


def test_an_answer_survives_json() -> None:
    """The document decodes to the value that it was written from."""
    report = answer(SPEC, assume(load_machine("h200"), None, REGISTRY), REGISTRY, Options())
    again = msgspec.json.decode(msgspec.json.encode(report), type=SelectReport)
    assert again == report


def test_layers_that_need_no_backend_are_answered() -> None:
    """A block without attention has no pick and no candidates, and does not make the answer no."""
    report = answer(SPEC, assume(load_machine("h200"), None, REGISTRY), REGISTRY, Options())
    full, none = report.groups
    assert full.pick is not None
    assert (none.pick, none.answered, none.candidates) == (None, True, ())
    assert report.exit_code == 0


def test_one_group_without_a_backend_makes_the_answer_no() -> None:
    """Nothing installed: the answer is 1, and so is that of a sweep that holds it."""
    good = answer(SPEC, assume(load_machine("h200"), None, REGISTRY), REGISTRY, Options())
    bad = answer(SPEC, assume(load_machine("h200"), "none", REGISTRY), REGISTRY, Options())
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert sweep([good, bad]).exit_code == 1
    assert sweep([good]).exit_code == 0


def test_reasons_are_the_findings_that_are_not_met() -> None:
    """Every candidate keeps all of its findings, and its reasons are a part of them."""
    report = answer(SPEC, assume(load_machine("h200"), None, REGISTRY), REGISTRY, Options())
    candidates = report.groups[0].candidates
    assert {candidate.ok for candidate in candidates} == {True, False}
    for candidate in candidates:
        unmet = tuple(f for f in candidate.findings if f.verdict.value != "met")
        assert candidate.reasons == unmet
        assert candidate.ok == (not unmet)


def test_the_device_asked_for_must_be_there() -> None:
    """A device that the machine lacks is a wrong option, not the last one it has."""
    machine = Assumption(machine_factory.cuda(9))
    with pytest.raises(InputError, match="--device 1: cuda-90 has only device 0"):
        answer(SPEC, machine, REGISTRY, Options(), device=1)
    two = Assumption(load_machine("max1550"))
    assert answer(SPEC, two, REGISTRY, Options(), device=1).machine.device.index == 1
    with pytest.raises(InputError, match="devices 0 to 1"):
        answer(SPEC, two, REGISTRY, Options(), device=-1)


def test_every_model_is_answered_on_every_machine() -> None:
    """Machines go round the outside, models round the inside."""
    machines = [load_machine("h200"), load_machine("zen4")]
    other = msgspec.structs.replace(SPEC, model_type="y")
    found = [
        (report.machine.name, report.model.model_type)
        for report in answers([SPEC, other], machines, REGISTRY, Options())
    ]
    assert found == [("h200", "x"), ("h200", "y"), ("zen4", "x"), ("zen4", "y")]
