"""A profile that fits whatever processor the tests run on."""

from __future__ import annotations

from attnctl.probe import probe
from attnctl.profile.canonical import encode
from attnctl.profile.document import key_of
from attnctl.profile.keys import Versions
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing


def profile_of_here() -> str:
    """A profile that fits this processor: one layer shape at one point."""
    layer = Shape(op="paged", heads=2, kv_heads=2, head_size=32, head_size_v=32, dtype="float32")
    timing = Timing(backend="CPU_ATTN", median_us=9.0)
    point = Point(phase="decode", batch=1, context=64, timings=(timing,))
    entries = (Entry(shape=layer, points=(point,)),)
    made = Profile(name="here", key=key_of(probe(), None), versions=Versions(), entries=entries)
    return encode(made).decode()
