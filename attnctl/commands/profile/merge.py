"""One document out of several that were measured on one device with one set of versions.

Where two timed the same thing, the one that was measured later counts; on one day the one that is
named later.
"""

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  attnctl profile merge monday.json tuesday.json -o both.json

\b
Exit codes: 0 merged; 2 documents of two devices or versions, or one that does
not read."""


def command(
    ctx: typer.Context,
    file: Annotated[list[str], typer.Argument(metavar="FILE...", help="Profiles, or names.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
    ] = "-",
) -> None:
    from functools import reduce
    from os import environ

    from attnctl.profile.canonical import encode
    from attnctl.profile.find import open_profiles
    from attnctl.profile.merge import merge
    from attnctl.profile.store import refuse_unknown
    from attnctl.render.output import remark

    ctx.obj.output.refuse_unwritable(output)
    profiles = [found.profile for found in open_profiles(file, environ)]
    for profile in profiles:
        refuse_unknown(profile)
        for bad in profile.bad_entries:
            remark(bad)
    ctx.obj.output.save(encode(reduce(merge, profiles)), output)
