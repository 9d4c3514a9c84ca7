"""The cases of a quick run: each phase and each kind of option once, in as few as may be.

Backends whose kernels Triton's interpreter runs take turns, as most of them share their kernels: a
value that several of them take is tried on one. Those that run natively try every fourth case too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from attnctl.ops.case import Case, Value, split_case
from attnctl.ops.catalog import case_of
from attnctl.profile.pick import phase_of
from attnctl.smoke.planning import Plan

Mark = tuple[str, str, str]
"""An operation, an option (or "phase", "lengths") and a kind of value."""

EACH = ("phase", "poison")
"""What every backend tries, whoever shares its kernels."""

LONG = 512
"""Context tokens for which the interpreter takes as long as a case more."""


class Told(NamedTuple):
    text: str
    marks: tuple[Mark, ...]
    tokens: int


def quick(plans: Sequence[Plan]) -> list[Plan]:
    """The same plans with fewer cases, in their order; one at least where there was one."""
    cases = [[told(text) for text in one.runnable] for one in plans]
    sharing: dict[Mark, list[int]] = {}
    for place, one in enumerate(plans):
        if one.level == "interpret":
            for mark in dict.fromkeys(mark for case in cases[place] for mark in case.marks):
                sharing.setdefault(mark, []).append(place)
    dealt = _dealt(sharing)
    return [
        msgspec.structs.replace(one, runnable=_fewer(one, cases[place], place, dealt))
        for place, one in enumerate(plans)
    ]


def _dealt(sharing: dict[Mark, list[int]]) -> dict[Mark, int]:
    """Which of the plans that could try a mark does: those that could take turns."""
    turns: dict[tuple[int, ...], int] = {}
    dealt = {}
    for mark, places in sharing.items():
        if mark[1] not in EACH:
            turn = turns[tuple(places)] = turns.get(tuple(places), -1) + 1
            dealt[mark] = places[turn % len(places)]
    return dealt


def _fewer(
    plan: Plan, cases: Sequence[Told], place: int, dealt: dict[Mark, int]
) -> tuple[str, ...]:
    wanted = {mark for one in cases for mark in one.marks}
    if plan.level == "interpret":
        wanted = {mark for mark in wanted if dealt.get(mark, place) == place}
    kept = set() if plan.level == "interpret" else set(plan.runnable[::4])
    wanted.difference_update(*(one.marks for one in cases if one.text in kept))
    phases: dict[str, int] = {}
    while wanted or (cases and not kept):
        best = max(cases, key=lambda one: _worth(one, wanted, phases))
        kept.add(best.text)
        wanted.difference_update(best.marks)
        for op, name, value in best.marks:
            if name == "phase":
                phases[op + value] = phases.get(op + value, 0) + 1
    return tuple(text for text in plan.runnable if text in kept)


def _worth(one: Told, wanted: set[Mark], phases: dict[str, int]) -> tuple[int, int, int]:
    """More marks first, though not for long contexts; then the phase that came least."""
    found = one.marks
    been = sum(phases.get(op + value, 0) for op, name, value in found if name == "phase")
    return len(wanted.intersection(found)) - one.tokens // LONG, -been, -len(one.text)


def told(text: str) -> Told:
    """A case by its text."""
    one = case_of(*split_case(text))
    return Told(text, marks(one), sum(_lengths(one, "contexts")))


def marks(one: Case) -> tuple[Mark, ...]:
    """What a case tries: its options that are not at their defaults, its phase, odd lengths.

    A number is less or more than the default, and uneven where it is no power of two.
    """
    queries, contexts = _lengths(one, "queries"), _lengths(one, "contexts")
    found = [(one.op, "phase", phase(one))] if contexts else []
    default = case_of(one.op, {}).params
    for name, value in one.params.items():
        if value != default[name] and name not in ("queries", "contexts"):
            found += [(one.op, name, kind) for kind in _kinds(value, default[name])]
    if 0 in (*queries, *contexts):
        found.append((one.op, "lengths", "zero"))
    if len(queries) == 1:
        found.append((one.op, "lengths", "one sequence"))
    return tuple(found)


def _kinds(value: Value, default: Value) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int) or not isinstance(default, int):
        yield str(value)
        return
    yield "less" if value < default else "more"
    if value & (value - 1):
        yield "uneven"


def phase(one: Case) -> str:
    """prefill, chunked, speculative, decode, or nothing where no sequence has a query token."""
    pairs = zip(_lengths(one, "queries"), _lengths(one, "contexts"), strict=False)
    live = [(query, context) for query, context in pairs if query]
    if not live:
        return "nothing"
    longest = max(query for query, _ in live)
    if longest == 1:
        return "decode"
    if all(query == context for query, context in live):
        return "prefill"
    return "speculative" if phase_of(longest) == "decode" else "chunked"


def _lengths(one: Case, name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in str(one.params.get(name, "")).split("+") if part)
