"""A shipped profile, of which a selection reads the head and the layer shapes that it asks for.

Such a file is in the canonical form and is known to read as a whole (tests see to both), so that
no command pays for timings that it does not use. What is found otherwise is left to the reader of
any profile, which says what is wrong.
"""

from pathlib import Path

import msgspec

from attnctl.documents.files import read_bytes
from attnctl.documents.json_text import UNREADABLE
from attnctl.profile.document import Envelope, check_schema
from attnctl.profile.values import Entry, Point, Profile, Shape

HEAD = 1 << 12
"""Bytes in which the head of a shipped profile ends, several times over."""
_ENTRIES = b'\n "entries": ['


class _Part(msgspec.Struct, kw_only=True):
    """An entry whose points are still text."""

    shape: Shape
    points: msgspec.Raw
    kernels: dict[str, str] = {}
    order: tuple[str, ...] = ()
    gain: float | None = None
    ci: tuple[float, float] | None = None


class _Parts(Envelope, kw_only=True):
    entries: list[_Part] = msgspec.field(default_factory=list)  # type: ignore[assignment]


def head_of(path: Path) -> bytes:
    """The document of this file without its entries, as JSON; with them where they begin late.

    InputError where it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head, entries, _ = file.read(HEAD).partition(_ENTRIES)
    except OSError:
        entries = b""  # whoever reads it whole says why it cannot be
    return head.rstrip(b",") + b"\n}" if entries else read_bytes(path, "profile")


def part_of(data: bytes, shapes: frozenset[Shape]) -> Profile | None:
    """The profile with the entries of these shapes alone; None where something does not read.

    shapes: with their V width said (Shape.full).
    """
    try:
        read = msgspec.json.decode(data, type=_Parts)
        entries = tuple(_entry(part) for part in read.entries if part.shape.full in shapes)
    except UNREADABLE:
        return None
    check_schema(read.schema, read.name)
    return read.profile(entries)


def counts_of(data: bytes) -> tuple[int, int] | None:
    """Its shapes, and the points of all of them; None where something does not read."""
    try:
        entries = msgspec.json.decode(data, type=_Parts).entries
        points = [msgspec.json.decode(part.points, type=list[msgspec.Raw]) for part in entries]
    except UNREADABLE:
        return None
    return len(entries), sum(map(len, points))


def _entry(part: _Part) -> Entry:
    return Entry(
        shape=part.shape,
        points=msgspec.json.decode(part.points, type=tuple[Point, ...]),
        kernels=part.kernels,
        order=part.order,
        gain=part.gain,
        ci=part.ci,
    )
