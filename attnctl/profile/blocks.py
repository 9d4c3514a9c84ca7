"""The timings of a layer shape on one size of the cache's blocks.

A tune chooses a size for each layer shape by itself, and keeps what it raced on the others beside.
The defaults of a backend are timed everywhere, on the size that it has by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from attnctl.layer import Layer
from attnctl.profile.order import entry_of
from attnctl.profile.ranking import BLOCK_SIZE
from attnctl.profile.values import Entry, Point, Profile, Rejected, Timing
from attnctl.registry import Registry
from attnctl.selection.picking import own_page


def own_sizes(registry: Registry, platform: str) -> dict[str, int]:
    """Backend -> tokens in a block of its cache where nobody names a size; none for states."""
    return {one.name: own_page(one, platform) for one in registry.backends if not one.is_ssm}


def timed_sizes(entry: Entry, own: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes on which something was timed, rising. own: as own_sizes gives them."""
    return tuple(sorted({size for p in entry.points for size, _ in _sized(p, own)}))


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
    """The point with the timings of one size.

    A backend that was timed on another size alone gave no time here only if it failed on this one.
    """
    found: dict[str, Timing] = {}
    for size, timing in _sized(point, own, defaults):
        if size == tokens:
            found.setdefault(timing.backend, timing)
    elsewhere = {one.backend for one in (*point.timings, *point.others)} - found.keys()

    def counts(one: Rejected) -> bool:
        size = one.knobs.get(BLOCK_SIZE, own.get(one.backend))
        return one.backend not in elsewhere or (one.why != "pruned" and size == tokens)

    return msgspec.structs.replace(
        point,
        pick="",
        timings=tuple(found.values()),
        others=(),
        rejected=tuple(filter(counts, point.rejected)),
    )


def _sized(
    point: Point, own: Mapping[str, int], defaults: bool = True
) -> Iterator[tuple[int, Timing]]:
    """Each timing with its size; those of a backend's best settings before its mere defaults."""
    for timing in (*point.timings, *point.others):
        size = timing.block_size or own.get(timing.backend)
        if size is not None:
            yield size, timing
    for timing in point.timings if defaults else ():
        usual = defaults_of(timing)
        size = timing.default_block or own.get(timing.backend)
        if size is not None and usual is not None:
            yield size, usual


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
