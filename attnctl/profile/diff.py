"""Where two profiles differ: their keys and versions, points of one alone, picks that changed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from attnctl.exits import Exit
from attnctl.profile.canonical import canonical
from attnctl.profile.knob_text import knob_text
from attnctl.profile.match import KEY_FIELDS, same
from attnctl.profile.values import Entry, Point, Profile, Timing

SCHEMA = "attnctl.profile-diff/1"


class Field(msgspec.Struct, frozen=True):
    """A field of the documents' heads that is another in each."""

    name: str
    one: str
    other: str


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """One point whose pick, kernel or knobs differ, or that only one profile holds.

    one, other: the pick with its settings, None where the point is not there. ratio: what the
    first's pick costs against the second's, as the second timed both; None where it did not.
    """

    shape: str
    point: str
    one: str | None
    other: str | None
    one_us: float | None = None
    other_us: float | None = None
    ratio: float | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in which two profiles differ; times alone are no difference."""

    schema: str = SCHEMA
    one: str
    other: str
    fields: tuple[Field, ...]
    points: tuple[Changed, ...]
    equal: int

    @property
    def exit_code(self) -> Exit:
        return Exit.NO if self.fields or self.points else Exit.OK


def difference(one: Profile, other: Profile) -> Difference:
    """Their differences; equal counts the points at which both pick the same."""
    first, second = canonical(one), canonical(other)
    changed, equal = [], 0
    for name, a, b in _pairs(first, second):
        found = _changed(name, a, b)
        if found is None:
            equal += 1
        else:
            changed.append(found)
    return Difference(
        one=one.name,
        other=other.name,
        fields=tuple(_fields(first, second)),
        points=tuple(changed),
        equal=equal,
    )


def _fields(one: Profile, other: Profile) -> Iterator[Field]:
    for part, names in (("key", KEY_FIELDS), ("versions", ("torch", "triton", "driver"))):
        for name in names:
            a, b = (getattr(getattr(side, part), name) for side in (one, other))
            if a != b and not (part == "key" and same(a, b)):
                yield Field(f"{part}.{name}", _said(a), _said(b))
    kernels = [
        {(str(e.shape), name): h for e in side.entries for name, h in e.kernels.items()}
        for side in (one, other)
    ]
    for shape, name in sorted(kernels[0].keys() & kernels[1].keys()):
        a, b = (side[shape, name] for side in kernels)
        if a != b:
            yield Field(f"kernel source of {name} at {shape}", a, b)


def _pairs(
    one: Profile, other: Profile
) -> Iterator[tuple[str, tuple[Entry, Point] | None, tuple[Entry, Point] | None]]:
    sides = [
        {(e.shape.full, p.place): (e, p) for e in side.entries for p in e.points}
        for side in (one, other)
    ]
    for shape, place in dict.fromkeys((*sides[0], *sides[1])):
        yield str(shape), sides[0].get((shape, place)), sides[1].get((shape, place))


def _changed(
    shape: str, one: tuple[Entry, Point] | None, other: tuple[Entry, Point] | None
) -> Changed | None:
    a = one[1].timing(one[1].pick) if one else None
    b = other[1].timing(other[1].pick) if other else None
    if one and other and (_setting(a) if a else None) == (_setting(b) if b else None):
        return None
    ratio = None
    if a is not None and b is not None and other is not None:
        same = other[1].timing(a.backend)
        # another setting of one backend was not timed by the second
        if same is not None and a.backend != b.backend:
            ratio = round(same.median_us / b.median_us, 4)
    point = one[1] if one else other[1] if other else ""
    return Changed(
        shape=shape,
        point=str(point),
        one=_text(a),
        other=_text(b),
        one_us=a.median_us if a else None,
        other_us=b.median_us if b else None,
        ratio=ratio,
    )


def _setting(timing: Timing) -> tuple[object, ...]:
    return timing.backend, timing.kernel, sorted(timing.knobs.items())


def _text(timing: Timing | None) -> str | None:
    if timing is None:
        return None
    knobs = (knob_text(name, value) for name, value in sorted(timing.knobs.items()))
    return " ".join(filter(None, (timing.backend, timing.kernel, *knobs)))


def _said(value: object) -> str:
    return "not stated" if value is None else str(value)
