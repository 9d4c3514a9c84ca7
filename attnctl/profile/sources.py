"""Where profiles are looked for, in order: the option, the environment, the user's, the bundled."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from attnctl.documents.files import read_bytes
from attnctl.documents.json_text import UNREADABLE, unmarked
from attnctl.exits import InputError
from attnctl.profile.document import check_schema, parse, repeated_in_entries
from attnctl.profile.keys import Key, Versions
from attnctl.profile.places import NONE, VARIABLE, bundled_folder, json_files, user_files
from attnctl.profile.shipped import counts_of, head_of, part_of
from attnctl.profile.values import Profile, Shape

Origin = Literal["option", "environment", "user", "bundled"]
NAMED = ("option", "environment")
"""Origins of files that somebody named: damage in one ends the run."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a document fits, without its entries."""

    schema: str
    name: str
    key: Key
    versions: Versions = Versions()
    measured: str = ""
    memory_bytes: int | None = None

    @property
    def profile(self) -> Profile:
        """The document without its entries."""
        return Profile(**msgspec.structs.asdict(self))


class Source(msgspec.Struct, frozen=True):
    """One file and its header; error: why it does not read, where nobody named it.

    data: what was read of one that was named, which may be a pipe and read but once.
    """

    origin: Origin
    path: Path
    header: Header | None
    error: str = ""
    data: bytes = b""

    def read(self, shapes: frozenset[Shape] | None = None) -> Profile:
        """The whole document; InputError where it does not read.

        shapes: of a shipped one the entries of these (Shape.full) will do.
        """
        data = self.data or read_bytes(self.path, "profile")
        if shapes is not None and self.origin == "bundled":
            part = part_of(data, shapes)
            if part is not None:
                return part
        return parse(data, str(self.path), ours=self.origin == "bundled")

    def counts(self) -> tuple[int, int]:
        """Its layer shapes, and the points of all of them; InputError where it does not read."""
        if self.origin == "bundled":
            found = counts_of(read_bytes(self.path, "profile"))
            if found is not None:
                return found
        entries = self.read().entries
        return len(entries), sum(len(entry.points) for entry in entries)


def sources(
    option: str | None, environ: Mapping[str, str], bundled: Path | None = None
) -> tuple[Source, ...]:
    """Every profile that may be used, in the order in which they are searched.

    option: the value of --profile, a file or the name of one of the found; "none" there, or in
    ATTNCTL_PROFILE, leaves all out. bundled: the folder of the shipped ones, where it is another.
    Raises InputError where one that was named is not there or does not read; one that was only
    found is kept with its error.
    """
    where = bundled or bundled_folder()
    named: list[tuple[Origin, str]] = []
    for origin, value in (("option", option), ("environment", environ.get(VARIABLE))):
        if value == NONE:
            return tuple(_named(*one, environ, where) for one in named)
        if value:
            named.append((origin, value))  # type: ignore[arg-type]
    return (
        *(_named(*one, environ, where) for one in named),
        *(_found("user", path) for path in user_files(environ)),
        *(_found("bundled", path) for path in json_files(where)),
    )


def _named(origin: Origin, name: str, environ: Mapping[str, str], bundled: Path) -> Source:
    try:
        path = _located(name, environ, bundled)
        data = read_bytes(path, "profile")
        return Source(origin, path, _header(data, path, ours=False), data=data)
    except InputError as error:
        if origin == "option":
            raise
        raise InputError(f"{VARIABLE}: {error}") from error


def _located(name: str, environ: Mapping[str, str], bundled: Path) -> Path:
    """The file of that path, or of that name among one's own profiles and the shipped ones.

    InputError: there is neither, and it does not look like a path.
    """
    if "/" in name or name.endswith(".json") or os.path.exists(name):  # noqa: PTH110
        return Path(name)
    known = {path.stem: path for path in (*json_files(bundled), *user_files(environ))}
    if name not in known:
        from attnctl.nearest import did_you_mean

        hint = did_you_mean(name, known) or " See: attnctl profile list"
        raise InputError(f"{name}: no profile or file of that name.{hint}")
    return known[name]


def _found(origin: Origin, path: Path) -> Source:
    try:
        ours = origin == "bundled"
        data = head_of(path) if ours else read_bytes(path, "profile")
        return Source(origin, path, _header(data, path, ours))
    except InputError as error:
        return Source(origin, path, None, str(error))


def _header(data: bytes, path: Path, ours: bool) -> Header:
    data = unmarked(data, str(path))
    try:
        header = msgspec.json.decode(data, type=Header)
    except UNREADABLE as error:
        raise InputError(f"{path}: not a profile: {error}") from error
    check_schema(header.schema, str(path))
    if not ours:
        repeated_in_entries(data, str(path))
    return header
