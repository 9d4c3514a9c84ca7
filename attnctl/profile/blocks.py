"""The timings of a layer shape on one size of the cache's blocks.

A tune chooses a size for each layer shape by itself, and keeps what it raced on the others beside.
The defaults of a backend are timed everywhere, on the size that it has by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from attnctl.layer import Layer
from attnctl.profile.order import entry_of
from attnctl.profile.ranking import BLOCK_SIZE, first_of
from attnctl.profile.values import Entry, Point, Profile, Rejected, Timing
from attnctl.registry import Registry
from attnctl.selection.picking import own_page

Place = tuple[str, int, int, int]
"""Of a point in its entry: phase, batch, context, query."""


def own_sizes(registry: Registry, platform: str) -> dict[str, int]:
    """Backend -> tokens in a block of its cache where nobody names a size; none for states."""
    return {one.name: own_page(one, platform) for one in registry.backends if not one.is_ssm}


def timed_sizes(entry: Entry, own: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes on which something was timed, rising. own: as own_sizes gives them."""
    return tuple(sorted({size for p in entry.points for size, _, _ in _sized(p, own, True)}))


def on_block(
    entry: Entry, tokens: int, own: Mapping[str, int], *, defaults: bool = True
) -> Entry | None:
    """The entry as far as it was timed with blocks of so many tokens; None: it was not.

    defaults: also backends of which nothing but the defaults were timed on this size at a point.
    """
    points = tuple(p for p in (_at(p, tokens, own, defaults) for p in entry.points) if p.timings)
    if not points:
        return None
    return msgspec.structs.replace(entry, points=points, gain=None, ci=None)


def times_on(
    entry: Entry,
    tokens: int,
    own: Mapping[str, int],
    eligible: Sequence[str],
    *,
    defaults: bool = True,
) -> dict[Place, tuple[float, float]]:
    """Point -> the time of what is picked there with blocks of so many tokens, and its weight.

    Nothing of points where nothing is. eligible: in the default order. defaults: as of on_block.
    """
    found = {}
    for point in entry.points:
        timings = _timings(point, tokens, own, defaults)
        if timings:
            judged = {one.backend for one in _rejected(point, timings, tokens, own)}
            first = first_of(timings.values(), judged - timings.keys(), eligible)
            if first is not None:
                found[point.place] = first.median_us, point.weight
    return found


def for_users_block(
    profile: Profile | None, layer: Layer, registry: Registry, platform: str
) -> tuple[Profile | None, str]:
    """The profile with what it says of a layer on the block size that the user named.

    With a sentence where the layer was timed on other sizes alone: then nothing is known of this.
    """
    entry = None if profile is None else entry_of(profile, layer)
    if profile is None or entry is None or layer.block_size is None or layer.group.is_ssm:
        return profile, ""
    own = own_sizes(registry, platform)
    found = on_block(entry, layer.block_size, own)
    kept = (found if one is entry else one for one in profile.entries)
    changed = msgspec.structs.replace(profile, entries=tuple(one for one in kept if one))
    sizes = "" if found is not None else " and ".join(map(str, timed_sizes(entry, own)))
    told = f"timed with {sizes} tokens in a block, and not with {layer.block_size}"
    return changed, told if sizes else ""


def _at(point: Point, tokens: int, own: Mapping[str, int], defaults: bool) -> Point:
    """The point with the timings of one size."""
    found = _timings(point, tokens, own, defaults)
    return msgspec.structs.replace(
        point,
        pick="",
        timings=tuple(found.values()),
        others=(),
        rejected=tuple(_rejected(point, found, tokens, own)),
    )


def _timings(
    point: Point, tokens: int, own: Mapping[str, int], defaults: bool
) -> dict[str, Timing]:
    """Backend -> its timing on one size."""
    found: dict[str, Timing] = {}
    for size, timing, usual in _sized(point, own, defaults):
        if size == tokens and timing.backend not in found:
            one = defaults_of(timing) if usual else timing
            if one is not None:
                found[timing.backend] = one
    return found


def _rejected(
    point: Point, found: Collection[str], tokens: int, own: Mapping[str, int]
) -> Iterator[Rejected]:
    """What of the rejected settings counts on a size. found: backends that were timed on it.

    A backend that was timed on another size alone gave no time here only if it failed on this one.
    """
    if not point.rejected:
        return
    elsewhere = {one.backend for one in (*point.timings, *point.others)}
    for one in point.rejected:
        size = one.knobs.get(BLOCK_SIZE, own.get(one.backend))
        tried_here = one.why != "pruned" and size == tokens
        if one.backend in found or one.backend not in elsewhere or tried_here:
            yield one


def _sized(
    point: Point, own: Mapping[str, int], defaults: bool
) -> Iterator[tuple[int, Timing, bool]]:
    """Each timing with its size; those of a backend's best settings before its mere defaults,
    which are told by the last of the three."""
    for timing in (*point.timings, *point.others):
        size = timing.block_size or own.get(timing.backend)
        if size is not None:
            yield size, timing, False
    for timing in point.timings if defaults else ():
        size = timing.default_block or own.get(timing.backend)
        if size is not None and timing.default_us is not None:
            yield size, timing, True


def defaults_of(timing: Timing) -> Timing | None:
    """What the backend's defaults took at the point, as a timing, of which no spread is known."""
    if timing.default_us is None:
        return None
    return Timing(
        backend=timing.backend,
        median_us=timing.default_us,
        runs=timing.runs,
        knobs={BLOCK_SIZE: timing.default_block} if timing.default_block else {},
        clock=timing.clock,
    )
