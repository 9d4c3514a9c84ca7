"""Where the picks of two profiles differ: other backends, kernels or knobs, points of one alone.

Times alone are no difference: no two runs measure the same. Where both timed both picks, what the
first's costs against the second's is shown.
"""

from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  attnctl profile diff monday.json tuesday.json

\b
Exit codes: 0 they pick the same; 1 they differ; 2 a profile that does not
read."""


def command(
    ctx: typer.Context,
    one: Annotated[str, typer.Argument(metavar="ONE", help="A profile, or the name of one.")],
    other: Annotated[str, typer.Argument(metavar="OTHER", help="Another.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.profile.diff import difference
    from attnctl.profile.find import open_profile
    from attnctl.render.output import remark

    first, second = (open_profile(name, environ).profile for name in (one, other))
    for bad in (*first.bad_entries, *second.bad_entries):
        remark(bad)
    found = difference(first, second)
    if json:
        ctx.obj.output.json(found)
    else:
        from attnctl.render.profile_checks import difference_view

        ctx.obj.output.view(difference_view(found))
    raise typer.Exit(found.exit_code)
