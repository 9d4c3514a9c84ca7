"""What every backend supports as declared, and whether it is installed and usable here.

Reads the built-in backends and those of installed plug-ins; one that does not load is named with
its error, and the others are listed all the same. Usable: the device and the packages are what it
wants. A layer's own demands are a matter for `attnctl select`, a proof one for `attnctl smoke`.
"""

from typing import Annotated

import typer

from attnctl.parameters import backends, machines

EXAMPLES = """\b
Examples:
  attnctl list
  attnctl list FLASHMLA
  attnctl list --machine mi300x        (installed and usable there)
  attnctl list --markdown > support.md
  attnctl list --json

\b
Exit codes: 0 listed; 2 no backend or machine of that name."""


def command(
    ctx: typer.Context,
    backend: Annotated[
        str | None,
        typer.Argument(
            metavar="[BACKEND]", autocompletion=backends, help="Only this one, in full."
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", metavar="NAME|FILE", autocompletion=machines, help="In place of this one."
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the table of the docs.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV, a row for each backend.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    from attnctl.registry import load
    from attnctl.support.backend import support_of
    from attnctl.support.table import matrix

    forms = {"--json": json, "--csv": csv, "--markdown": markdown}
    given = [name for name, asked in forms.items() if asked]
    if len(given) > 1:
        raise typer.BadParameter(f"{given[0]} and {given[1]} are two forms of one answer: give one")
    if markdown and machine is not None:
        raise typer.BadParameter("--markdown is what is declared, the same for each --machine")
    registry = load()
    table = matrix(registry) if backend is None else support_of(backend, registry)
    output = ctx.obj.output
    if markdown:
        from attnctl.support.markdown import markdown as as_markdown

        output.text(as_markdown(table))
        return
    from attnctl.profile.find import target
    from attnctl.selection.presence import on_machine

    table = on_machine(table, registry, target(machine, 0, registry))
    if json:
        output.json(table)
    elif csv:
        from attnctl.render.csv_text import support_csv

        output.text(support_csv(table))
    else:
        from attnctl.render.support import backend_view, support_view

        output.view(support_view(table) if backend is None else backend_view(table))
