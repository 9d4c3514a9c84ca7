"""Adds documents to your own profiles, from where `select` and the library take them.

Timings of one device and one set of versions are kept in one file, point by point; where two
documents timed the same thing the later one counts, unless its kernel is another than here. Two
imports at once keep the union.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attnctl.profile.values import Profile

EXAMPLES = """\b
Examples:
  attnctl profile import colleague.json

\b
Exit codes: 0 added; 1 an entry was left out, being broken; 2 a document that
does not read, or a folder that cannot be written."""


def command(
    ctx: typer.Context,
    file: Annotated[list[str], typer.Argument(metavar="FILE...", help="Documents to add.")],
) -> None:
    from os import environ

    from attnctl.exits import Exit
    from attnctl.profile.document import read_profile
    from attnctl.profile.hashes import KernelHashes, hashes_of
    from attnctl.registry import load
    from attnctl.render.output import remark
    from attnctl.render.plain import clean
    from attnctl.render.profile import counts_text

    profiles = [read_profile(one) for one in file]
    bad = [sentence for profile in profiles for sentence in profile.bad_entries]
    for sentence in bad:
        remark(sentence)
    registry, hashes = load(), KernelHashes()
    for profile in profiles:
        here = hashes_of(profile, registry, hashes)
        path = _saved(profile, environ, here)
        ctx.obj.output.text(f"{path}: {counts_text(profile)} of {clean(profile.name)}\n")
    raise typer.Exit(Exit.NO if bad else Exit.OK)


def _saved(profile: Profile, environ: Mapping[str, str], here: Mapping[str, str]) -> Path:
    """The file that holds it now. InputError: what is there already does not read; what to do."""
    from attnctl.exits import InputError
    from attnctl.profile.places import folder
    from attnctl.profile.store import file_name, save

    try:
        return save(profile, environ, here=here)
    except InputError as error:
        where = folder(environ)
        if where is None or not str(error).startswith(str(where / file_name(profile))):
            raise
        if "attnctl profile prune" in str(error):
            raise
        raise InputError(f"{error}; move that file away and import again") from error
