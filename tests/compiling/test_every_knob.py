"""Every setting compiled: each launch once, each fault told, and nothing done twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attnctl.compiling.knob_journal import open_journal
from attnctl.compiling.knobs import Step, compile_knobs
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import Ready, Trial
from tests.compiling.planted_plugins import planted_plugins

CASE = "paged(queries=1,contexts=16,window={})"
SOUND, CRASHES, HANGS = CASE.format(1), CASE.format(6), CASE.format(7)
STALE = CASE.format(10)
# with the same constants, and other lengths: the same launch
ALIKE = "paged(queries=1,contexts=17,window=1)"


@pytest.fixture(scope="module", autouse=True)
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with planted_plugins(tmp_path_factory.mktemp("triton")):
        yield


def plan(*cases: str, target: str = "sm_90") -> Plan:
    return Plan("MISCOMPILES", target, "compile", cases, (), 512, every_knob=True)


def compiled(
    *plans: Plan, journal: str | None = None, timeout_s: float = 120.0, children: int = 2
) -> tuple[dict[tuple[int, str], Trial], Step, list[Ready]]:
    """Trials by the plan's place and case, how far it was at last, and the children."""
    steps: list[Step] = []
    said: list[Ready] = []
    with open_journal(journal) as noted:
        found = {
            (place, trial.case): trial
            for place, trial in compile_knobs(
                plans, timeout_s, children, said.append, journal=noted, told=steps.append
            )
        }
    return found, steps[-1], said


def test_each_launch_is_compiled_once_and_a_second_run_compiles_none(tmp_path: Path) -> None:
    """Settings, cases and backends share launches; a grid is no part of what is compiled."""
    path = str(tmp_path / "journal")
    found, step, _ = compiled(plan(SOUND, ALIKE), journal=path)
    # multiply twice, and what does not compile
    assert (step.done, step.total, step.known, step.bad) == (3, 3, 0, 2)
    for case in (SOUND, ALIKE):
        assert found[0, case].status == "wrong"
        told = found[0, case].detail.split("; ")
        assert [text.partition(":")[0] for text in told] == ["fault=9", "fault=2", "fault=5"]
        assert "no launch for it" in told[0]
        assert "of shared memory, a block has 232448" in told[1]
        assert "refuse_kernel: CompileTimeAssertionFailure: no such kernel" in told[2]
        assert len(found[0, case].launches) == 2
    again, step, _ = compiled(plan(SOUND, ALIKE), journal=path)
    assert again == found
    assert (step.done, step.total, step.known) == (0, 0, 3)


def test_a_crash_costs_its_own_case_and_a_hang_ends_at_the_limit() -> None:
    """Both of one that lists; the others are compiled by a new child."""
    found, step, said = compiled(plan(CRASHES, HANGS, SOUND), timeout_s=15.0, children=1)
    assert found[0, CRASHES].status == "crashed"
    assert "signal SIGABRT" in found[0, CRASHES].detail
    assert found[0, HANGS].status == "timeout"
    assert len(found[0, SOUND].launches) == 2
    assert (step.lists_left, len(said)) == (0, 3)


def test_a_crash_of_a_child_that_did_other_things_before_is_tried_in_a_new_one() -> None:
    """What is sound by itself passes; what crashes again is told."""
    found, _, said = compiled(plan(SOUND, STALE, CRASHES), children=1)
    assert len(found[0, STALE].launches) == 2
    assert found[0, CRASHES].status == "crashed"
    # one dies of the second case, one of the third, one of that again; the last compiles
    assert len(said) == 4


def test_a_run_that_was_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    """What it had noted is known; the rest, a line cut through the middle too, is compiled."""
    path = tmp_path / "journal"
    compiled(plan(SOUND), journal=str(path))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    found, step, _ = compiled(plan(SOUND), journal=str(path))
    assert (step.done, step.total, step.known) == (1, 1, 2)
    assert len(found[0, SOUND].launches) == 2


def test_each_target_is_compiled_for_by_itself() -> None:
    """The plans keep their places, and what one refuses is told first."""
    refused = Trial("paged()", "unsupported")
    other = Plan("MISCOMPILES", "gfx942", "compile", (SOUND,), (refused,), 512, every_knob=True)
    found, step, _ = compiled(plan(SOUND), other)
    assert set(found) == {(0, SOUND), (1, SOUND), (1, "paged()")}
    assert step.total == 6
    assert "a block has 65536" in found[1, SOUND].detail
