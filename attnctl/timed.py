"""What a profile's timings say of one group of layers, point by point and along one axis."""

from __future__ import annotations

from typing import Literal

import msgspec

Evidence = Literal["measured", "rule", "default", "requested", "only"]


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """The pick at one timed point: B = batch sequences of S = context tokens, query new ones each.

    kernel "" and no knobs: the bundled defaults. time_us: what it took.
    """

    phase: str
    batch: int
    context: int
    query: int
    backend: str
    kernel: str
    knobs: dict[str, int | str | bool]
    evidence: Evidence
    because: str
    time_us: float | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The pick from one value of an axis to another, both included; None: nothing is eligible."""

    axis: str
    first: int
    last: int
    backend: str | None
    kernel: str = ""
    knobs: dict[str, int | str | bool] = {}
    evidence: Evidence | None = None
    because: str = ""
