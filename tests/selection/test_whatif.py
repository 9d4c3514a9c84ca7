"""What a single change would give, asked under the same circumstances as the selection itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from attnctl.layer import Options, layer_of
from attnctl.machines.assumed import Assumption
from attnctl.model.spec import ModelSpec
from attnctl.profile import Entry, Point, Profile, Timing, key_of, shape_of
from attnctl.profile.canonical import encode
from attnctl.profile.shelf import Shelf
from attnctl.registry import load
from attnctl.render.plain import plain
from attnctl.render.reasons import answers
from attnctl.selection.answer import answer
from attnctl.selection.report import SelectReport
from tests import machine_factory as box
from tests.layer_factory import group

REGISTRY = load()
MACHINE = box.cuda(8)
LAYERS = group()
SPEC = ModelSpec(model_type="invented", groups=(LAYERS,), dtype="bfloat16", dtype_source="dtype")


def timed(**times: float) -> Profile:
    """A profile of this machine with one decode point of the layer's shape."""
    shape = shape_of(layer_of(SPEC, LAYERS, Options()))
    timings = tuple(Timing(backend=name, median_us=us) for name, us in times.items())
    point = Point(phase="decode", batch=1, context=1024, timings=timings)
    key = key_of(MACHINE, MACHINE.gpus[0])
    return Profile(name="p", key=key, entries=(Entry(shape=shape, points=(point,)),))


def asked(shelf: Shelf | None = None, **options: object) -> SelectReport:
    return answer(
        SPEC,
        Assumption(MACHINE),
        REGISTRY,
        msgspec.structs.replace(Options(), **options),
        what_if=True,
        profiles=shelf,
    )


def test_what_if_starts_from_the_pick_that_the_profile_gave(tmp_path: Path) -> None:
    """`before` is the pick of the answer, and a change that keeps the timed order is no flip."""
    file = tmp_path / "p.json"
    file.write_bytes(encode(timed(FLASH_ATTN=9.0, FLASHINFER=8.0, TRITON_ATTN=1.0)))
    report = asked(Shelf(str(file), {}))
    (one,) = report.groups
    assert one.pick == "TRITON_ATTN"
    assert one.what_if
    assert {flip.before for flip in one.what_if} == {"TRITON_ATTN"}
    changes = {flip.change: flip.after for flip in one.what_if}
    assert "without flash_attn" not in changes
    assert changes["--dtype float16"] == "FLASH_ATTN"  # not timed in that dtype: the usual order


def test_what_would_leave_no_backend_stands_apart_from_what_gives_one() -> None:
    """No row called none under a heading that promises a gain."""
    text = plain(answers(asked()))
    gains, _, losses = text.partition("leaves no backend")
    assert "any one of these changes gives it" in gains
    assert "--tp 2" not in gains
    assert "none" not in gains.partition("gives it")[2]
    assert "without torch" in losses


def test_fewer_ranks_are_tried_as_well_as_more() -> None:
    """Eight of 32 heads on 12 ranks: six ranks do not serve either, one does."""
    report = asked(tp=12)
    (one,) = report.groups
    assert one.what_if is not None
    assert [f.change for f in one.what_if if f.after and f.change.startswith("--tp")] == ["--tp 1"]
    (four,) = asked(tp=4).groups
    assert four.what_if is not None
    assert not [f for f in four.what_if if f.change.startswith("--tp")]
