"""What a case comes to when every launch of its settings is known."""

from __future__ import annotations

import msgspec

from attnctl.compiling.knob_lines import Listed, Made
from attnctl.compiling.knob_trial import NO_LAUNCH, trial_of
from attnctl.compiling.report import Launched
from attnctl.smoke.trials import Trial

GOOD = Launched(
    kernel="k",
    variant="TILE=64",
    shared_bytes=1000,
    shared_limit_bytes=2000,
    registers=128,
    spills_bytes=0,
    seconds=1.5,
)
A, B = "sm_90:k:a", "sm_90:k:b"
LISTED = Listed(
    "sm_90", ("the defaults", "tile=2", "tile=2 fill=3", "tile=4"), ((A,), (B,), (A, B), (A,))
)


def made(key: str, **changes: object) -> Made:
    return Made(key, launched=msgspec.structs.replace(GOOD, variant=key, **changes))


def tried(*made: Made, listed: Listed = LISTED) -> Trial:
    return trial_of("paged()", listed, {one.key: one for one in made}, 512)


def test_all_is_well_and_each_launch_is_told_once() -> None:
    """With the seconds that its launches took, whichever settings share them."""
    found = tried(made(A), made(B))
    assert (found.status, found.detail, found.seconds) == ("pass", "", 3.0)
    assert [one.variant for one in found.launches] == [A, B]


def test_a_fault_names_the_first_of_its_settings_and_counts_the_others() -> None:
    """A setting that does not load makes the case wrong; the defaults are what it would be."""
    found = tried(made(A), made(B, shared_bytes=2001))
    assert found.status == "wrong"
    assert found.detail == (
        "tile=2 and 1 more: k: needs 2001 bytes of shared memory, a block has 2000"
    )


def test_only_the_defaults_may_not_spill() -> None:
    """Tune leaves a setting that spills, since it is slow; nobody leaves the defaults."""
    assert tried(made(A), made(B, spills_bytes=9000)).status == "pass"
    found = tried(made(A, spills_bytes=513), made(B))
    assert found.status == "wrong"
    assert "k: spills 513 bytes, at most 512 may be" in found.detail


def test_defaults_that_do_not_compile_are_an_error_and_other_settings_are_wrong() -> None:
    """A crash and a hang of the defaults keep their own status."""
    bad = Made(B, "error", detail="RuntimeError: no")
    assert (tried(made(A), bad).status, tried(made(A), bad).detail) == (
        "wrong",
        "tile=2 and 1 more: k: RuntimeError: no",
    )
    assert tried(Made(A, "error", detail="no"), made(B)).status == "error"
    crashed = tried(Made(A, "crashed", detail="signal SIGSEGV"), made(B))
    assert (crashed.status, crashed.detail) == (
        "crashed",
        "the defaults and 2 more: k: crashed: signal SIGSEGV",
    )


def test_a_setting_that_launches_nothing_says_why() -> None:
    """And so does a case that launches nothing at all."""
    refused = Listed("sm_90", ("the defaults", "tile=3"), ((A,), ()), {1: "InputError: no"})
    found = tried(made(A), listed=refused)
    assert (found.status, found.detail) == ("wrong", "tile=3: InputError: no")
    first = Listed("sm_90", ("the defaults",), ((),), {0: "InputError: no"})
    assert tried(listed=first).status == "error"
    empty = tried(listed=Listed("sm_90", ("the defaults",), ((),)))
    assert (empty.status, empty.detail) == ("wrong", NO_LAUNCH)
