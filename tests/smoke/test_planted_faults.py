"""Smoke is red for each planted fault, and green for the specification itself."""

from __future__ import annotations

import pytest

from attnctl.smoke.trials import Trial
from attnctl.smoke.workers import importable, try_cases

PLAIN = "paged(queries=1+1,contexts=3+18)"
WINDOW = "paged(queries=4+1,contexts=20+33,window=7)"
PADDED = "paged(queries=1+1,contexts=20+33,padding=2)"

pytestmark = pytest.mark.usefixtures("plugins")


def tried(backend: str, *cases: str, timeout_s: float = 60.0) -> list[Trial]:
    return list(try_cases(backend, "cpu", cases, timeout_s))


@pytest.mark.parametrize(
    ("backend", "case", "status", "says"),
    [
        ("SOUND", WINDOW, "pass", ""),
        ("SOUND", PADDED, "pass", ""),
        ("OFF_BY_ONE", WINDOW, "wrong", "over budget"),
        ("LEAVES_NAN", PLAIN, "wrong", "not written"),
        ("OVERRUNS", PLAIN, "wrong", "written after the tensor"),
        ("WRITES_PADDING", PADDED, "wrong", "cache"),
        ("RAISES", PLAIN, "error", "RuntimeError: no such kernel"),
        ("CRASHES", WINDOW, "crashed", "signal SIGSEGV"),
        ("PRINTS", PLAIN, "pass", ""),
    ],
)
def test_each_fault_has_its_status(backend: str, case: str, status: str, says: str) -> None:
    """Wrong, unwritten, overrun, error and crash are told apart; noise on stdout harms nothing."""
    (trial,) = tried(backend, case)
    assert trial.status == status, trial.detail
    assert says in trial.detail


def test_a_result_that_is_right_and_not_the_same_twice_is_wrong_where_that_is_asked() -> None:
    """One bit of one element: inside every budget, and still another answer to the same batch."""
    assert [trial.status for trial in tried("UNSTEADY", PLAIN, PLAIN)] == ["pass", "pass"]
    found = [*try_cases("UNSTEADY", "cpu", (PLAIN,), 60.0, twice=True)]
    found += try_cases("SOUND", "cpu", (PLAIN, WINDOW), 60.0, twice=True)
    assert [trial.status for trial in found] == ["wrong", "pass", "pass"]
    assert "two runs on the same inputs differ" in found[0].detail


def test_what_a_child_can_import_is_found_in_one_child() -> None:
    """One that does not open costs nothing but its own answer."""
    assert importable(["SOUND", "NO_SUCH_BACKEND", "RAISES"]) == {"SOUND", "RAISES"}


def test_a_version_that_is_not_installed_is_no_fault_of_the_case() -> None:
    """What it takes is tried, and the rest is unsupported, with the reason; nothing is red."""
    plain, window = tried("LACKS", PLAIN, WINDOW)
    assert (plain.status, window.status) == ("pass", "unsupported")
    (reason,) = window.reasons
    assert reason.code == "package_missing"
    assert "version 4 cannot be loaded" in reason.found


def test_a_crash_costs_its_own_case_alone() -> None:
    """The worker is started again and the cases after it run."""
    statuses = [trial.status for trial in tried("CRASHES", PLAIN, WINDOW, PLAIN)]
    assert statuses == ["pass", "crashed", "pass"]


def test_a_hang_ends_at_the_limit_and_the_rest_runs() -> None:
    """A kernel that never returns is a timeout, and its worker is killed."""
    statuses = [trial.status for trial in tried("HANGS", WINDOW, PLAIN, timeout_s=8.0)]
    assert statuses == ["timeout", "pass"]


def test_a_backend_that_does_not_open_says_why_for_every_case() -> None:
    """One start is tried, and its sentence is each case's detail."""
    trials = tried("NO_SUCH_BACKEND", PLAIN, WINDOW)
    assert [trial.status for trial in trials] == ["error", "error"]
    assert "no such backend" in trials[0].detail


def test_a_case_with_an_unknown_parameter_is_an_error_of_that_case() -> None:
    """A misspelt parameter names those that exist."""
    (trial,) = tried("SOUND", "paged(windoww=7)")
    assert trial.status == "error"
    assert "windoww" in trial.detail
