"""The planted faults: every one is caught, and a check that misses one says so."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from attnctl.render.plain import plain
from attnctl.render.self_test import self_test_view
from attnctl.selftest.faults import FAULTS, Fault
from attnctl.selftest.run import self_test
from tests.commands.running import run

LEAST = 30


def test_every_planted_fault_is_caught() -> None:
    """Their sound twins pass the same cases; a crash and a hang are told apart."""
    found = self_test()
    missed = {one.name: one.by for one in found.faults if not one.caught}
    assert missed == {}
    assert found.exit_code == 0
    assert len(found.faults) == len(FAULTS) >= LEAST
    by = {one.name: one.by for one in found.faults}
    assert by["crashes"].startswith("crashed: signal SIGSEGV")
    assert by["hangs"].startswith("timeout")


def test_every_fault_has_a_plant_and_every_plant_its_fault() -> None:
    """Names of the table and of the modules agree, and no name is there twice."""
    assert len({one.name for one in FAULTS}) == len(FAULTS)
    for module in ("paged", "states", "latent"):
        plants = import_module(f"attnctl.selftest.{module}")
        here = {
            name
            for name, value in vars(plants).items()
            if getattr(value, "__module__", "") == plants.__name__
            and (inspect.isclass(value) or inspect.isfunction(value))
            and not name.startswith("_")
        }
        assert here - {"sound"} == {one.name for one in FAULTS if one.module == module}


def test_a_fault_that_no_case_shows_is_missed() -> None:
    """A softcap dropped where there is none: the case passes, and the answer is no."""
    blind = Fault("softcap_dropped", "paged", "nothing", ("paged(queries=1,contexts=9,page=32)",))
    found = self_test([blind])
    assert found.exit_code == 1
    assert found.faults[0].by.endswith("passes with it")
    assert "0 of 1 planted faults were caught" in plain(self_test_view(found))


def test_nothing_planted_is_not_a_pass() -> None:
    """A run without a fault proves nothing."""
    assert self_test([]).exit_code == 1


@pytest.mark.parametrize("more", [("--all",), ("--backend", "CPU_ATTN"), ("--junit", "x.xml")])
def test_the_self_test_goes_alone(more: tuple[str, ...]) -> None:
    """It has its own cases and backends."""
    found = run("smoke", "--self-test", *more)
    assert found.code == 2
    assert "--self-test goes with --json alone" in found.err
