"""Where a choice changes: along a length or a batch from the timings, along a head size by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.memo import Memo
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.nearest import did_you_mean
from attnctl.profile.pick import DECODE_TOKENS, Picker, Table, phase_of
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.select import eligible_names, select
from attnctl.timed import Mapped, Span

if TYPE_CHECKING:
    from attnctl.layer import Layer

LENGTHS = ("batch", "context", "query")
HEAD_SIZE = "head_size"
HEAD_STEP = 8
"""Kernels ask for multiples of 8 at least, so that nothing changes between two of them."""
STEPS = 8
"""Looks per octave of a length; grids of timed points are coarser, and breaks are bisected."""
LIMIT = 1 << 24
CONTEXT = 4096
"""Tokens of context where nobody says how many."""
DIGITS = 8
WIDEST = 4096
"""The largest head size that is tried: each one is a selection of its own."""
EXAMPLE = "as in --sweep context=1..131072,batch=8,phase=decode"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One axis from low to high, and the workload beside it.

    phase: "" for what so many new tokens are in the library.
    """

    axis: str
    low: int
    high: int
    phase: str = ""
    batch: int = 1
    context: int = CONTEXT
    query: int = 1

    @property
    def most_new(self) -> int:
        """The most new tokens of a sequence that are asked about."""
        return self.high if self.axis == "query" else self.query


def read_ask(text: str) -> Ask:
    """The value of --sweep: AXIS=LOW..HIGH[,NAME=VALUE...]. InputError says what is wrong in it."""
    fields: dict[str, Any] = {}
    given: set[str] = set()
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in given:
            raise InputError(f"--sweep {text}: {name} is given twice; give it once, {EXAMPLE}")
        given.add(name)
        if ".." in value:
            if "axis" in fields:
                raise InputError(f"--sweep {text}: two ranges; give one, {EXAMPLE}")
            fields.update(axis=_axis(name), **_bounds(text, value))
        elif name == "phase" and value in ("decode", "prefill"):
            fields["phase"] = value
        elif name in LENGTHS:
            fields[name] = _count(text, value)
        else:
            raise InputError(f"--sweep {text}: {part!r} is no range and no setting: {EXAMPLE}")
    if "axis" not in fields:
        raise InputError(f"--sweep {text}: no range; {EXAMPLE}")
    if fields["axis"] == HEAD_SIZE:
        _check_head_sizes(text, fields)
    ask = msgspec.convert({**_defaults(fields), **fields}, Ask)
    _check_lengths(text, ask)
    return ask


def _check_head_sizes(text: str, fields: dict[str, Any]) -> None:
    if fields["high"] > WIDEST:
        raise InputError(f"--sweep {text}: head sizes go up to {WIDEST}; {EXAMPLE}")
    for name in ("phase", *LENGTHS):
        if name in fields:
            raise InputError(
                f"--sweep {text}: {name} has no say along head_size, where the rules alone decide: "
                "leave it out"
            )


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """A context that holds the new tokens, and a prefill of the whole of it."""
    new = fields["high"] if fields["axis"] == "query" else fields.get("query", 1)
    found = {"context": max(CONTEXT, new)}
    if fields.get("phase") == "prefill" and fields["axis"] != "query":
        context = fields.get("context", found["context"])
        found["query"] = min(fields["high"], context) if fields["axis"] == "context" else context
    return found


def _check_lengths(text: str, ask: Ask) -> None:
    new, most = ask.most_new, ask.high if ask.axis == "context" else ask.context
    if new > most:
        raise InputError(
            f"--sweep {text}: {new} new tokens are more than the context of {most}, which counts "
            "them: give a longer context"
        )
    if ask.phase == "decode" and new > DECODE_TOKENS:
        raise InputError(
            f"--sweep {text}: a decoding step has at most {DECODE_TOKENS} new tokens, found {new}: "
            "say phase=prefill, or leave it out"
        )


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
        return _joined(ask, _head_sizes(ask), lambda size: _decided(by_head_size(size)))
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

    return _joined(ask, _lengths(ask), picked)


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


def _joined(ask: Ask, values: Iterator[int], picked: Callable[[int], Span]) -> tuple[Span, ...]:
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


def _axis(name: str) -> str:
    known = (*LENGTHS, HEAD_SIZE)
    if name not in known:
        hint = did_you_mean(name, known) or f" Known are {', '.join(known)}."
        raise InputError(f"--sweep: no axis {name!r}.{hint}")
    return name


def _bounds(text: str, value: str) -> dict[str, int]:
    low, _, high = value.partition("..")
    bounds = {"low": _count(text, low), "high": _count(text, high)}
    if bounds["low"] > bounds["high"]:
        raise InputError(f"--sweep {text}: it ends before it starts; {EXAMPLE}")
    return bounds


def _count(text: str, word: str) -> int:
    """A number of 1 or more, or one in k (1024)."""
    number, kilo = (word[:-1], 1024) if word[-1:] in ("k", "K") else (word, 1)
    digits = number.isascii() and number.isdigit() and len(number) <= DIGITS
    if not digits or not 0 < int(number) * kilo <= LIMIT:
        raise InputError(f"--sweep {text}: {word!r} is no count from 1 to {LIMIT}; {EXAMPLE}")
    return int(number) * kilo
