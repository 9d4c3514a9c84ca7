"""A page with the winners' maps and each rival against the roofline.

One file that needs no network and no script, readable in light and dark: per layer shape a map of
the fastest by batch and context, bars of every rival's share of the roofline, and all figures.
"""

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  attnctl profile report mine.json -o report.html
  attnctl profile report mine.json --png report.png

\b
Exit codes: 0 written; 2 a profile that does not read, or no matplotlib for
--png (pip install 'attnctl[report]')."""


def command(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A profile, or the name of one.")],
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The page; - is stdout.")
    ] = None,
    png: Annotated[
        str | None, typer.Option("--png", metavar="FILE", help="The same as a picture.")
    ] = None,
) -> None:
    from os import environ

    from attnctl.documents.files import refuse_unwritable, same_file
    from attnctl.exits import InputError
    from attnctl.profile.find import open_profile
    from attnctl.render.output import remark

    if output is None and png is None:
        raise typer.BadParameter("name where to: -o FILE, --png FILE or both")
    if output is not None:
        ctx.obj.output.refuse_unwritable(output)
    if png == "-":
        raise InputError("--png -: a picture is no text: name a file")
    if png is not None:
        refuse_unwritable(png)
    path, profile = open_profile(file, environ)
    for option, where in (("--output", output), ("--png", png)):
        if where is not None and same_file(where, path):
            raise InputError(f"{option} {where}: it is the profile itself; name another file")
    if output is not None and png is not None and same_file(output, png):
        raise InputError(f"--png {png}: --output writes the page there; name another file")
    for bad in profile.bad_entries:
        remark(bad)
    if output is not None:
        from attnctl.profile.page.html import page

        ctx.obj.output.save(page(profile).encode(), output)
    if png is not None:
        from attnctl.profile.page.png import write_png

        write_png(profile, png)
