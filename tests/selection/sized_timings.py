"""Profiles whose timings tell sizes of the cache's blocks apart."""

from __future__ import annotations

from typing import Any

from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.registry import load
from attnctl.select import select_model
from attnctl.selection.one_block import one_block
from attnctl.selection.timed import OneBlock
from tests.commands.running import MODELS
from tests.profile.factory import machine

FLASH, TRITON = "FLASH_ATTN", "TRITON_ATTN"

PLACES = ((1, 1024), (16, 4096))
GPT_OSS = read_model(MODELS / "gpt-oss-20b.json")
H200 = machine("h200")
Sized = dict[tuple[str, int | None], float]
"""Backend and block size (None: its own) -> microseconds; the first size met is the chosen one."""


def timing(backend: str, size: int | None, time_us: float, **more: Any) -> Timing:
    knobs = {"block_size": size} if size else {}
    return Timing(backend=backend, median_us=time_us, knobs=knobs, **more)


def entry(spec: ModelSpec, group: int, times: Sized, **more: Any) -> Entry:
    """The shape of a group, with the same times at both places."""
    chosen = next(size for _, size in times)
    timings = [timing(name, size, time, **more) for (name, size), time in times.items()]
    points = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=context,
            timings=tuple(one for one in timings if one.block_size == chosen),
            others=tuple(one for one in timings if one.block_size != chosen),
        )
        for batch, context in PLACES
    )
    shape = shape_of(layer_of(spec, spec.groups[group], Options()))
    return Entry(shape=shape.full, points=points)


def profile(*entries: Entry, box: Machine = H200) -> Profile:
    return Profile(name="p", key=key_of(box, box.gpus[0] if box.gpus else None), entries=entries)


def costs(
    found: Profile | None,
    spec: ModelSpec = GPT_OSS,
    box: Machine = H200,
    options: Options | None = None,
) -> OneBlock | None:
    options = options or Options()
    decisions = select_model(spec, box, load(), options, profile=found)
    return one_block(decisions, spec, box, load(), options, profile=found)


WINDOWED: Sized = {
    (FLASH, None): 20.0,
    (TRITON, None): 10.0,
    (FLASH, 128): 13.0,
    (TRITON, 128): 14.0,
}
FULL: Sized = {
    (FLASH, 128): 150.0,
    (TRITON, 128): 100.0,
    (FLASH, None): 160.0,
    (TRITON, None): 130.0,
}
