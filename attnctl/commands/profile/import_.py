"""Adds documents to your own profiles, from where `select` and the library take them.

Timings of one device and one set of versions are kept in one file, point by point; where two
documents timed the same thing the later one counts. Two imports at once keep the union.
"""

from typing import Annotated

import typer

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
    from attnctl.profile.store import save
    from attnctl.render.output import remark
    from attnctl.render.plain import clean
    from attnctl.render.profile import counts_text

    profiles = [read_profile(one) for one in file]
    bad = [sentence for profile in profiles for sentence in profile.bad_entries]
    for sentence in bad:
        remark(sentence)
    for profile in profiles:
        path = save(profile, environ)
        ctx.obj.output.text(f"{path}: {counts_text(profile)} of {clean(profile.name)}\n")
    raise typer.Exit(Exit.NO if bad else Exit.OK)
