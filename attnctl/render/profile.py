"""The screens of `attnctl profile list` and `show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attnctl.profile.keys import Versions
from attnctl.profile.listing import LayerRow, Listing, Row, layers, point_count
from attnctl.profile.ranking import default_us, in_order
from attnctl.profile.shelf import Fit
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.render.amounts import bytes_text, count_text
from attnctl.render.profiled import ORIGINS, settings_text, time_text
from attnctl.render.view import Block, Cell, Heading, Line, Mark, Style, Table, View

TOLD = 1.005
"""The least gain that is told: less is 1.00x."""
STYLES: dict[str, Style] = {"valid": "good", "stale": "warn", "foreign": "dim", "damaged": "bad"}


def counts_text(profile: Profile) -> str:
    """ "2 shapes, 40 points"."""
    shapes = count_text(len(profile.entries), "shape")
    return f"{shapes}, {count_text(point_count(profile), 'point')}"


def listing_view(listing: Listing) -> View:
    """One line per profile; status is how it fits the machine named at the end."""
    if not listing.profiles:
        return (Line("no profiles: attnctl tune makes them, attnctl profile import adds them"),)
    columns = ("name", "origin", "device", "versions", "measured", "holds", "here")
    table = Table(columns, tuple(map(_listed, listing.profiles)))
    broken = tuple(Line(Mark(row.error, "bad")) for row in listing.profiles if row.error)
    return (table, *broken, Line(Mark(f"here: {listing.machine}", "dim")))


def _listed(row: Row) -> tuple[Cell, ...]:
    holds = f"{count_text(row.shapes, 'shape')}, {count_text(row.points, 'point')}"
    return (
        row.name,
        ORIGINS.get(row.origin, row.origin),
        str(row.key) if row.key else "",
        versions_text(row.versions) if row.versions else "",
        row.measured,
        "" if row.error else holds,
        Mark(row.status, STYLES[row.status]),
    )


def versions_text(versions: Versions) -> str:
    """ "torch 2.11.0, triton 3.6.0"; what is not stated is left out."""
    named = ((name, getattr(versions, name)) for name in ("torch", "triton", "driver"))
    return ", ".join(f"{name} {version}" for name, version in named if version)


def profile_view(path: str, profile: Profile, bad: Iterable[str]) -> View:
    """One profile: its head, then a table of points per layer shape."""
    memory = bytes_text(profile.memory_bytes) if profile.memory_bytes else ""
    facts = {
        "profile": f"{profile.name} [{path}]",
        "device": ", ".join(filter(None, (str(profile.key), memory))),
        "versions": versions_text(profile.versions),
        "measured": profile.measured,
        "conditions": ", ".join(f"{k} {_said(v)}" for k, v in profile.conditions.items()),
    }
    head = Table((), tuple((Mark(name, "dim"), text) for name, text in facts.items() if text))
    broken = [Line(Mark(sentence, "bad")) for sentence in bad]
    return (head, *broken, *(block for entry in profile.entries for block in entry_blocks(entry)))


def layers_view(fit: Fit, machine: str, *, only_origin: bool) -> View:
    """What all profiles say for one device: where each shape comes from, then its points."""
    found = layers(fit, timings=True)
    if not found.layers:
        near = [f"; the nearest is {one.name} [{one.path}]" for one in fit.nearest]
        return (Line(Mark(f"no profile fits {machine}{''.join(near)}", "warn")),)
    columns = ("shape", "from", "file", "hides")
    table = Table(columns, tuple(_origin(row) for row in found.layers))
    blocks: list[Block] = [table]
    if not only_origin:
        blocks += [b for row in found.layers if row.entry for b in entry_blocks(row.entry)]
    return tuple(blocks)


def _origin(row: LayerRow) -> tuple[Cell, ...]:
    origin = ORIGINS.get(row.origin, row.origin)
    return str(row.shape), f"{row.profile} ({origin})", row.path, ", ".join(row.hidden)


def entry_blocks(entry: Entry) -> Iterator[Block]:
    """A heading with what the picks gain, and one row per point."""
    yield Heading(f"{entry.shape}{gain_text(entry)}")
    columns = ("phase", "B", "S", "new", "pick", "settings", "time", "rivals", "rejected")
    rows = tuple(_point(point, entry) for point in entry.points)
    yield Table(columns, rows, fixed=5)


def gain_text(entry: Entry) -> str:
    """ ": 1.30x as fast as the default (1.25x to 1.35x)", or nothing where it is not known."""
    if entry.gain is None:
        return ""
    bounds = f" ({entry.ci[0]:.2f}x to {entry.ci[1]:.2f}x)" if entry.ci else ""
    if entry.gain < TOLD:
        return ": as fast as the default"
    return f": {entry.gain:.2f}x as fast as the default{bounds}"


def _point(point: Point, entry: Entry) -> tuple[Cell, ...]:
    picked = point.timing(point.pick)
    others = [t for t in in_order(point.timings, entry.order) if t is not picked]
    return (
        point.phase,
        str(point.batch),
        str(point.context),
        str(point.query),
        point.pick or "none",
        settings_text(picked.kernel, picked.knobs) if picked else "",
        _time(picked) if picked else "",
        ", ".join(_rival(one, picked) for one in others),
        str(len(point.rejected)) if point.rejected else "",
    )


def _time(timing: Timing) -> str:
    usual = default_us(timing)
    gained = f", {usual / timing.median_us:.2f}x its defaults" if usual > timing.median_us else ""
    return f"{time_text(timing.median_us)}{gained}"


def _rival(timing: Timing, picked: Timing | None) -> str:
    ratio = f" ({timing.median_us / picked.median_us:.2f}x)" if picked else ""
    return f"{timing.backend} {time_text(timing.median_us)}{ratio}"


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
