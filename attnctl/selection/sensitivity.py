"""Where a choice changes: along a length or a batch from the timings, along a head size by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from attnctl.decision import Decision
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.profile.pick import Picker, Table, phase_of
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.select import eligible_names, select
from attnctl.selection.memo import Memo
from attnctl.selection.sweep import HEAD_SIZE, LENGTHS
from attnctl.selection.sweep import Ask as Ask
from attnctl.selection.timed import Mapped, Span

if TYPE_CHECKING:
    from attnctl.layer import Layer

HEAD_STEP = 8
"""Kernels ask for multiples of 8 at least, so that nothing changes between two of them."""
STEPS = 8
"""Looks per octave of a length; grids of timed points are coarser, and breaks are bisected."""


def map_group(decision: Decision, layer: Layer, profile: Profile | None) -> tuple[Mapped, ...]:
    """The pick at every timed point of the layer's shape; empty where it was never timed."""
    found = []
    for pick in _table(decision, layer, profile).points:
        if pick.point is not None:
            phase, batch, context, query = pick.point.place
            mapped = Mapped(
                phase=phase,
                batch=batch,
                context=context,
                query=query,
                backend=pick.backend,
                kernel=pick.kernel,
                knobs=dict(pick.knobs),
                evidence=pick.evidence,
                because=pick.because,
                time_us=pick.time_us,
            )
            found.append(mapped)
    return tuple(found)


def sweep_group(
    ask: Ask,
    decision: Decision,
    layer: Layer,
    profile: Profile | None,
    by_head_size: Callable[[int], Decision],
) -> tuple[Span, ...]:
    """The spans of one axis in which the choice stays the same, in order.

    by_head_size: the decision for the same layers with another head size.
    """
    if ask.axis == HEAD_SIZE:
        if layer.head_size is None or layer.group.mla is not None:
            return ()
        return _joined(_head_sizes(ask), lambda size: _decided(by_head_size(size)))
    table = _table(decision, layer, profile)

    def picked(value: int) -> Span:
        work = {**{name: getattr(ask, name) for name in LENGTHS}, ask.axis: value}
        work["query"] = min(work["query"], work["context"])
        phase = ask.phase or phase_of(work["query"])
        pick = table.pick(phase, work["batch"], work["context"], work["query"])
        return Span(
            axis=ask.axis,
            first=value,
            last=value,
            backend=pick.backend or None,
            kernel=pick.kernel,
            knobs=dict(pick.knobs),
            evidence=pick.evidence,
            because=pick.because,
        )

    return _joined(_lengths(ask), picked)


def head_size_decision(
    spec: ModelSpec,
    group: LayerGroup,
    machine: Machine,
    registry: Registry,
    options: Options,
    *,
    device: int = 0,
    profile: Profile | None = None,
) -> Callable[[int], Decision]:
    """From a head size to the decision for this group with that size of K (and V)."""
    memo = Memo()

    def decide(size: int) -> Decision:
        wide = None if group.head_size_v in (None, group.head_size) else group.head_size_v
        other = msgspec.structs.replace(group, head_size=size, head_size_v=wide)
        layer = layer_of(spec, other, options)
        return select(layer, machine, registry, options, memo=memo, device=device, profile=profile)

    return decide


def _table(decision: Decision, layer: Layer, profile: Profile | None) -> Table:
    from attnctl.profile.document import shape_of

    return Picker(profile).table(shape_of(layer), eligible_names(decision))


def _decided(decision: Decision) -> Span:
    pick = decision.pick
    return Span(
        axis=HEAD_SIZE,
        first=0,
        last=0,
        backend=pick.name if pick else None,
        evidence=pick.evidence if pick else None,
        because=pick.why if pick else "nothing is eligible",
    )


def _joined(values: Iterator[int], picked: Callable[[int], Span]) -> tuple[Span, ...]:
    """Spans of equal choices; between two values that differ, the first of the new is searched."""
    spans: list[Span] = []
    for value in values:
        found = msgspec.structs.replace(picked(value), first=value, last=value)
        while spans and not _same(spans[-1], found):
            low, high = spans[-1].last, value
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _same(spans[-1], picked(middle)) else (low, middle)
            spans[-1] = msgspec.structs.replace(spans[-1], last=low)
            if high == value:
                break
            spans.append(msgspec.structs.replace(picked(high), first=high, last=high))
        if spans and _same(spans[-1], found):
            spans[-1] = msgspec.structs.replace(spans[-1], last=value)
        else:
            spans.append(found)
    return tuple(spans)


def _same(one: Span, other: Span) -> bool:
    """Whether two spans have one choice; how it was reached may differ from point to point."""
    return (one.backend, one.kernel, one.knobs) == (other.backend, other.kernel, other.knobs)


def _lengths(ask: Ask) -> Iterator[int]:
    """Whole numbers from low to high, so many per octave."""
    last, step = 0, 0
    while last < ask.high:
        value = min(ask.high, round(ask.low * 2 ** (step / STEPS)))
        step += 1
        if value > last:
            yield value
            last = value


def _head_sizes(ask: Ask) -> Iterator[int]:
    first = -(-ask.low // HEAD_STEP) * HEAD_STEP
    return iter(range(first, ask.high + 1, HEAD_STEP))
