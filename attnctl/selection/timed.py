"""What a profile's timings say: of a group of layers by point and axis, of all by block size."""

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


class BlockCost(msgspec.Struct, frozen=True, kw_only=True):
    """One size for all layers. Places count the groups of the answer, from 0.

    ratio: the time of all layers over their time with blocks of their own, its weighted geometric
    mean over `points`, at which all groups were timed with both; None where there are none. plain:
    groups of which nothing but defaults were timed on this size: the ratio is the most it can be.
    untimed: groups that were not timed on this size; refused: those that no backend serves on it.
    """

    tokens: int
    ratio: float | None = None
    points: int = 0
    plain: tuple[int, ...] = ()
    untimed: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()


class OneBlock(msgspec.Struct, frozen=True, kw_only=True):
    """own: the sizes that groups have by themselves. sizes: these, and others timed for all groups.

    best: the one of the least ratio, or without any ratio the one that most layers have; None
    where none serves all groups. taken: it was asked for, and the answer has it.
    """

    own: tuple[int, ...]
    sizes: tuple[BlockCost, ...]
    best: int | None
    taken: bool = False

    @property
    def differs(self) -> bool:
        """Whether there is anything to say: the groups' own sizes differ, or none serves all."""
        return len(self.own) > 1 or self.best is None

    @property
    def is_timed(self) -> bool:
        """Whether the best is one by timings, and not for want of any."""
        return any(one.tokens == self.best and one.ratio is not None for one in self.sizes)
