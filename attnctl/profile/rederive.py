"""The decisions of a profile made again on a machine that need not be here, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from attnctl.exits import Exit
from attnctl.findings import Finding
from attnctl.layer import Layer
from attnctl.machine import Gpu, Machine
from attnctl.profile.checks import contradictions
from attnctl.profile.document import shape_of
from attnctl.profile.layers import layer_of_shape
from attnctl.profile.match import Status, match
from attnctl.profile.pick import Table
from attnctl.profile.values import Entry, Profile, Shape
from attnctl.registry import Registry
from attnctl.select import eligible_names, select

SCHEMA = "attnctl.profile-verify/1"


class Rederived(msgspec.Struct, frozen=True, kw_only=True):
    """One layer shape on one machine. agreed: points whose pick is the one that is stated.

    pick: the backend that `select` names for the shape. untimed: what is eligible on the machine
    and was not when the profile was made; the picks are made among the others. differences: what
    is otherwise, each in one sentence.
    """

    shape: str
    points: int
    agreed: int
    pick: str | None
    untimed: tuple[str, ...]
    differences: tuple[str, ...]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A whole profile, made again on one machine."""

    schema: str = SCHEMA
    path: str
    name: str
    machine: str
    status: Status
    findings: tuple[Finding, ...]
    problems: tuple[str, ...]
    shapes: tuple[Rederived, ...]

    @property
    def exit_code(self) -> Exit:
        bad = self.problems or self.status == "foreign"
        return Exit.NO if bad or any(one.differences for one in self.shapes) else Exit.OK


def rederive(
    path: str,
    profile: Profile,
    registry: Registry,
    machine: Machine,
    device: int = 0,
    layers: Sequence[Layer] = (),
) -> Verification:
    """Every pick of the profile from its timings and this machine's rules; no device is asked.

    layers: those of a model, which tell more than a shape does; others are made from the shape.
    """
    gpus = machine.gpus
    gpu: Gpu | None = gpus[device] if gpus else None
    found = match(profile, machine, gpu)
    known = {shape_of(layer).full: layer for layer in layers}
    return Verification(
        path=path,
        name=profile.name,
        machine=machine.name,
        status=found.status,
        findings=found.findings,
        problems=(*profile.bad_entries, *contradictions(profile)),
        shapes=tuple(
            _shape(entry, known, profile, registry, machine, device) for entry in profile.entries
        ),
    )


def _shape(
    entry: Entry,
    known: dict[Shape, Layer],
    profile: Profile,
    registry: Registry,
    machine: Machine,
    device: int,
) -> Rederived:
    layer = known.get(entry.shape.full) or layer_of_shape(entry.shape)
    decision = select(layer, machine, registry, device=device, profile=profile)
    here = eligible_names(decision)
    judged = frozenset(entry.order) or {t.backend for p in entry.points for t in p.timings}
    eligible = tuple(name for name in here if name in judged)
    table = Table(entry, eligible, profile.measured)
    picks = {pick.point.place: pick.backend for pick in table.points if pick.point}
    wrong = [
        f"at {point} it states {point.pick}, and here it is {picks.get(point.place, 'none')}"
        for point in entry.points
        if point.pick and picks.get(point.place) != point.pick
    ]
    return Rederived(
        shape=str(entry.shape),
        points=len(entry.points),
        agreed=len(entry.points) - len(wrong),
        pick=decision.pick.name if decision.pick else None,
        untimed=tuple(name for name in here if name not in judged),
        differences=(*_order(entry, eligible), *wrong),
    )


def _order(entry: Entry, eligible: Sequence[str]) -> Iterator[str]:
    gone = [name for name in entry.order if name not in eligible]
    if gone:
        yield f"not eligible on this machine: {', '.join(gone)}"
    here = [name for name in eligible if name in entry.order]
    there = [name for name in entry.order if name in eligible]
    if here != there:
        yield f"the default order was {', '.join(there)}, and here it is {', '.join(here)}"
