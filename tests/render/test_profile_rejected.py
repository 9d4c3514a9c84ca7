"""The screen of settings that could not win."""

from __future__ import annotations

from attnctl.profile.values import Entry, Point, Rejected, Shape
from attnctl.render.plain import plain
from attnctl.render.profile_rejected import rejected_view
from tests.commands.running import run

SHAPE = Shape(op="paged", heads=8, kv_heads=2, head_size=64)


def rejected(why: str, detail: str, **knobs: int) -> Rejected:
    return Rejected(backend="B1", why=why, detail=detail, knobs=knobs)


def test_settings_of_one_reason_share_a_row() -> None:
    """Details that differ in their figures are one reason; each row counts settings and points."""
    estimates = [rejected("pruned", f"{n}.5 times the best", keys=n) for n in (4, 5)]
    wrong = rejected("wrong", "error 0.3 over budget 0.1", keys=9)
    points = tuple(
        Point(phase="decode", batch=1, context=context, timings=(), rejected=(*estimates, *more))
        for context, more in ((64, ()), (128, (wrong,)))
    )
    lines = plain(rejected_view([Entry(shape=SHAPE, points=points)])).splitlines()
    assert [line.split(maxsplit=4) for line in lines[2:]] == [
        ["B1", "pruned", "2", "2", "keys=4 at decode B=1, S=64: 4.5 times the best"],
        ["B1", "wrong", "1", "1", "keys=9 at decode B=1, S=128: error 0.3 over budget 0.1"],
    ]


def test_what_the_budget_left_no_time_for_names_no_setting() -> None:
    """One setting or several, it is the same reason."""
    left = (
        rejected("pruned", "ended before 1 setting"),
        rejected("pruned", "ended before 3 settings"),
    )
    points = (Point(phase="decode", batch=1, context=64, timings=(), rejected=left),)
    text = plain(rejected_view([Entry(shape=SHAPE, points=points)]))
    assert text.endswith("decode B=1, S=64: ended before 1 setting\n")
    assert "defaults" not in text
    assert "nothing was rejected" in plain(rejected_view([Entry(shape=SHAPE, points=())]))


def test_the_command_shows_it_of_one_file() -> None:
    """A shipped profile has some; without a FILE, or as JSON, the option is refused."""
    found = run("profile", "show", "h200", "--rejected")
    assert found.code == 0
    assert "TRITON_ATTN  pruned" in found.out
    for words in (("--rejected",), ("h200", "--rejected", "--json")):
        assert run("profile", "show", *words).code == 2
