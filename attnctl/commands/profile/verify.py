"""Whether a machine's rules and the timings give the picks again; the machine need not be here.

For each layer shape `select` is asked what is eligible there, and the picks are made anew from the
timings; a backend that is no longer eligible, another default order or another pick is a
difference. With --model the layers are read from configurations, else made from the shapes.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, Ranks, machines

EXAMPLES = """\b
Examples:
  attnctl profile verify mine.json --machine h100
  attnctl profile verify mine.json --machine h200 --model config.json

\b
Exit codes: 0 every pick comes out again; 1 one does not, or the profile is of
other hardware; 2 a profile that does not read."""


def command(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A profile, or the name of one.")],
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine", metavar="NAME|FILE", autocompletion=machines, help="Default: this machine."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", metavar="PATH", help="config.json. Repeatable."),
    ] = None,
    tp: Ranks = 1,
    device: Device = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.layer import Options, layer_of
    from attnctl.model import read_model
    from attnctl.profile.find import open_profile, target
    from attnctl.profile.rederive import rederive
    from attnctl.registry import load

    path, profile = open_profile(file, environ)
    options = Options(tp=tp)
    specs = [read_model(one) for one in model or ()]
    layers = [layer_of(spec, group, options) for spec in specs for group in spec.groups]
    registry = load()
    where = target(machine, device, registry)
    found = rederive(path, profile, registry, where.machine, device, layers)
    if json:
        ctx.obj.output.json(found)
    else:
        from attnctl.render.profile_checks import verification_view

        ctx.obj.output.view(verification_view(found))
    raise typer.Exit(found.exit_code)
