"""The points of a workload: named grids, and files of the user's own. No torch."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.documents.files import read_bytes
from attnctl.documents.json_text import UNREADABLE, refuse_repeated, unmarked
from attnctl.exits import InputError
from attnctl.nearest import did_you_mean
from attnctl.profile.values import HEAVIEST

LIMIT = 1 << 24
"""Tokens of context, or sequences, beyond which a point is a slip of the hand."""


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point: B = batch sequences of S = context tokens each, query new ones each.

    weight: how often it is met, against the others.
    """

    phase: Literal["prefill", "decode"]
    batch: int
    context: int
    query: int = 1
    weight: float = 1.0

    def __str__(self) -> str:
        query = f", q={self.query}" if self.phase == "prefill" or self.query > 1 else ""
        return f"{self.phase} B={self.batch}, S={self.context}{query}"


def decode(batches: tuple[int, ...], contexts: tuple[int, ...]) -> tuple[Load, ...]:
    return tuple(
        Load(phase="decode", batch=batch, context=context)
        for context in contexts
        for batch in batches
    )


def prefill(*points: tuple[int, int, int]) -> tuple[Load, ...]:
    """Points of (B, S, new tokens)."""
    return tuple(
        Load(phase="prefill", batch=batch, context=context, query=query)
        for batch, context, query in points
    )


# contexts in steps of four, so that any point inside is within twofold of one that was timed, and
# in decode none that tiles of keys divide: a sequence that grows is at such a length once in a
# hundred steps, and a window that ends there needs a tile less than anywhere else;
# batches as engines pad them, for on them depends how well a launch fills the device
BATCHES = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)

WORKLOADS: dict[str, tuple[Load, ...]] = {
    "chat": (
        *decode(BATCHES, (250, 1000, 4000)),
        # where few sequences begin to fill a device, the length decides how keys are cut
        *decode((1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160), (2000,)),
        *decode((1, 2, 4, 8, 16, 32, 64, 128, 256), (8150,)),
        *prefill((1, 128, 128), (1, 256, 256), (1, 512, 512), (1, 2048, 2048), (1, 4096, 4096)),
        *prefill((2, 1024, 1024), (4, 512, 512), (4, 2048, 2048), (16, 512, 512)),
        *prefill((1, 2048, 512), (1, 8192, 512), (2, 4096, 512), (4, 4096, 512), (16, 2048, 512)),
    ),
    "long-context": (
        *decode((1, 2, 4, 8, 16), (8150, 32600, 130400)),
        *prefill((1, 8192, 8192), (1, 32768, 32768)),
        *prefill((1, 32768, 2048), (1, 131072, 2048), (4, 32768, 512), (1, 131072, 512)),
    ),
    "batch": (
        *decode((64, 128, 256, 512), (500, 1000, 4000)),
        *prefill((8, 512, 512), (32, 512, 512), (8, 2048, 2048), (16, 4096, 512)),
    ),
}


def read_workload(word: str) -> tuple[Load, ...]:
    """The points of a named workload, or of a JSON file that lists them.

    InputError: neither; or a point that makes no sense, with its place in the file.
    """
    if word in WORKLOADS:
        return WORKLOADS[word]
    if not word.endswith(".json") and "/" not in word:
        hint = did_you_mean(word, WORKLOADS) or f" Known are {', '.join(WORKLOADS)}."
        raise InputError(f"--workload {word}: no such workload, nor a .json file.{hint}")
    data = unmarked(read_bytes(word, "workload"), word)
    try:
        points = msgspec.json.decode(data, type=list[Load])
    except UNREADABLE as error:
        raise InputError(
            f"{word}: not a workload: {error}; it is a JSON list of points as "
            '{"phase": "decode", "batch": 8, "context": 4096, "query": 1, "weight": 1}'
        ) from error
    refuse_repeated(data, word)
    if not points:
        raise InputError(f"{word}: it lists no points, so there is nothing to time")
    for index, point in enumerate(points):
        _check(point, f"{word}: [{index}]")
    _refuse_twice(points, word)
    return tuple(points)


def _check(point: Load, where: str) -> None:
    for name in ("batch", "context", "query"):
        count = getattr(point, name)
        if not 1 <= count <= LIMIT:
            raise InputError(f"{where}.{name} is {count}: must be from 1 to {LIMIT}")
    if point.query > point.context:
        raise InputError(
            f"{where}: {point.query} new tokens are more than its context of {point.context}, "
            "which counts them"
        )
    if point.phase == "prefill" and point.query == 1 < point.context:
        raise InputError(
            f'{where}: a prefill of 1 new token is a decode: name its new tokens as "query"'
        )
    if not 1 / HEAVIEST <= point.weight <= HEAVIEST:
        raise InputError(
            f"{where}.weight is {point.weight}: must be a positive number, from "
            f"{1 / HEAVIEST:g} to {HEAVIEST:g}"
        )


def _refuse_twice(points: list[Load], where: str) -> None:
    seen = set()
    for index, point in enumerate(points):
        if str(point) in seen:
            raise InputError(f"{where}: [{index}] is there twice: {point}")
        seen.add(str(point))
