"""What one size of the cache's blocks for all layers would cost, by the profile's timings.

Each group of layers may have blocks of its own in attnctl's library. A serving engine has one size
for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from attnctl.decision import Decision
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import ModelSpec
from attnctl.profile.blocks import Place, own_sizes, timed_sizes, times_on
from attnctl.profile.order import entry_of
from attnctl.profile.values import Entry, Profile
from attnctl.registry import Registry
from attnctl.select import eligible_names, platform_of, select_model
from attnctl.selection.memo import Memo
from attnctl.selection.timed import BlockCost, OneBlock

Times = dict[Place, tuple[float, float]]
"""Point -> the time of what is picked there, and the point's weight."""


class _Group(msgspec.Struct, frozen=True):
    """A group that keeps a cache. size: of its blocks, by itself."""

    place: int
    decision: Decision
    entry: Entry | None
    layers: int
    size: int


def settled(
    decisions: tuple[Decision, ...],
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    *,
    device: int = 0,
    profile: Profile | None = None,
    memo: Memo | None = None,
) -> tuple[tuple[Decision, ...], Options, OneBlock | None]:
    """The decisions on one size where the options ask for it, with that size in the options.

    With the costs of each size; None where the user named one, or no group keeps a cache.
    """
    if options.block_size is not None:
        return decisions, options, None
    costs = one_block(
        decisions, spec, machine, registry, options, device=device, profile=profile, memo=memo
    )
    if costs is None or costs.best is None or not options.one_block_size:
        return decisions, options, costs
    options = msgspec.structs.replace(options, block_size=costs.best)
    under = select_model(
        spec, machine, registry, options, memo=memo, device=device, profile=profile
    )
    return under, options, msgspec.structs.replace(costs, taken=True)


def one_block(
    decisions: Sequence[Decision],
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    *,
    device: int = 0,
    profile: Profile | None = None,
    memo: Memo | None = None,
) -> OneBlock | None:
    """The costs of each size; None where no group of these decisions keeps a cache."""
    groups = _groups(decisions, spec, options, profile)
    if not groups:
        return None
    own = own_sizes(registry, platform_of(machine))
    # timings reorder what is eligible, and only a fallback goes by that order
    order = profile if options.allow_fallback else None
    base = [_times(one.decision, one.entry, one.size, own, plain=True) for one in groups]
    found = []
    for tokens in _sizes(groups, own):
        asked = msgspec.structs.replace(options, block_size=tokens, one_block_size=False)
        under = select_model(
            spec, machine, registry, asked, memo=memo, device=device, profile=order
        )
        found.append(_cost(tokens, groups, base, under, own))
    layers = {one.tokens: sum(g.layers for g in groups if g.size == one.tokens) for one in found}
    served = [one for one in found if not one.refused]
    best = min(
        served,
        default=None,
        key=lambda one: (one.ratio or math.inf, -layers[one.tokens], one.tokens),
    )
    return OneBlock(
        own=tuple(sorted({one.size for one in groups})),
        sizes=tuple(found),
        best=best.tokens if best else None,
    )


def _groups(
    decisions: Sequence[Decision], spec: ModelSpec, options: Options, profile: Profile | None
) -> list[_Group]:
    found = []
    for place, decision in enumerate(decisions):
        size = decision.pick.block_size if decision.pick else None
        if size is not None:
            layer = layer_of(spec, decision.group, options)
            entry = entry_of(profile, layer) if profile else None
            found.append(_Group(place, decision, entry, len(decision.group.layers), size))
    return found


def _sizes(groups: Sequence[_Group], own: dict[str, int]) -> list[int]:
    timed = [set(timed_sizes(one.entry, own)) if one.entry else set() for one in groups]
    return sorted({one.size for one in groups} | set.intersection(*timed))


def _cost(
    tokens: int,
    groups: Sequence[_Group],
    base: Sequence[Times],
    under: Sequence[Decision],
    own: dict[str, int],
) -> BlockCost:
    """base: each group's times on blocks of its own; under: the decisions on this size."""
    times, plain = [], []
    for group in groups:
        decision = under[group.place]
        found = _times(decision, group.entry, tokens, own, plain=False)
        if not found:
            found = _times(decision, group.entry, tokens, own, plain=True)
            plain += [group.place] if found else []
        times.append(found)
    refused = tuple(one.place for one in groups if under[one.place].pick is None)
    untimed = tuple(
        one.place
        for one, found in zip(groups, times, strict=True)
        if not found and one.place not in refused
    )
    ratio, points = _ratio([one.layers for one in groups], times, base)
    return BlockCost(
        tokens=tokens,
        ratio=ratio,
        points=points,
        plain=tuple(plain),
        untimed=untimed,
        refused=refused,
    )


def _times(
    decision: Decision, entry: Entry | None, tokens: int, own: dict[str, int], *, plain: bool
) -> Times:
    """Where the timings on this size pick something, its time."""
    if entry is None or decision.pick is None:
        return {}
    return times_on(entry, tokens, own, eligible_names(decision), defaults=plain)


def _ratio(
    layers: Sequence[int], times: Sequence[Times], base: Sequence[Times]
) -> tuple[float | None, int]:
    """All layers' time over that of base, a weighted geometric mean, and over how many points."""
    shared = set.intersection(*(set(one) for one in (*times, *base)))
    total = weights = 0.0
    for place in sorted(shared):
        weight = sum(one[place][1] for one in base) / len(base)
        took, usual = (
            sum(count * one[place][0] for count, one in zip(layers, each, strict=True))
            for each in (times, base)
        )
        total += weight * math.log(took / usual)
        weights += weight
    return (math.exp(total / weights), len(shared)) if shared else (None, 0)
