"""Every profile that is known here, and what all of them together say for one device."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from attnctl.exits import InputError
from attnctl.profile.find import Target
from attnctl.profile.keys import Key, Versions
from attnctl.profile.match import match
from attnctl.profile.shelf import Fit
from attnctl.profile.sources import Source, sources
from attnctl.profile.values import Entry, Profile, Shape
from attnctl.selection.briefs import ProfileBrief

SCHEMA = "attnctl.profile-list/1"
LAYERS_SCHEMA = "attnctl.profile-layers/1"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One profile. status: how it fits the device asked about; error: why it is damaged."""

    name: str
    origin: str
    path: str
    status: str
    key: Key | None = None
    versions: Versions | None = None
    measured: str = ""
    shapes: int = 0
    points: int = 0
    error: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    machine: str
    profiles: tuple[Row, ...]


class LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One layer shape: the profile that serves it, and those that hold it too and come later."""

    shape: Shape
    profile: str
    origin: str
    path: str
    hidden: tuple[str, ...]
    entry: Entry | None = None


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """All profiles together. profiles: each that was looked at, and how it fits."""

    schema: str = LAYERS_SCHEMA
    layers: tuple[LayerRow, ...]
    profiles: tuple[ProfileBrief, ...]


def listing(where: Target, environ: Mapping[str, str]) -> Listing:
    """Every profile of the environment, the user's folder and the bundled ones, in this order."""
    found = (_row(source, where) for source in sources(None, environ))
    return Listing(machine=where.machine.name, profiles=tuple(found))


def _row(source: Source, where: Target) -> Row:
    try:
        if source.header is None:
            raise InputError(source.error)
        profile, (shapes, points) = source.header.profile, source.counts()
    except InputError as error:
        path = str(source.path)
        return Row(
            name=source.path.stem,
            origin=source.origin,
            path=path,
            status="damaged",
            error=str(error),
        )
    return Row(
        name=profile.name,
        origin=source.origin,
        path=str(source.path),
        status=match(profile, where.machine, where.gpu).status,
        key=profile.key,
        versions=profile.versions,
        measured=profile.measured,
        shapes=shapes,
        points=points,
    )


def layers(fit: Fit, timings: bool) -> Layers:
    """What the profiles say, shape by shape. timings: with the points, not the origins alone."""
    entries = fit.profile.entries if fit.profile else ()
    rows = []
    for entry in entries:
        brief = fit.considered[fit.origins[entry.shape]]
        hidden = (fit.considered[place].path for place in fit.hidden.get(entry.shape, ()))
        row = LayerRow(
            shape=entry.shape,
            profile=brief.name,
            origin=brief.origin,
            path=brief.path,
            hidden=tuple(hidden),
            entry=entry if timings else None,
        )
        rows.append(row)
    return Layers(layers=tuple(rows), profiles=fit.considered)


def point_count(profile: Profile) -> int:
    """The workload points of all its shapes together."""
    return sum(len(entry.points) for entry in profile.entries)
