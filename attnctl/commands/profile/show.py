"""What a profile holds: per layer shape the pick at each point, its knobs, time and rivals.

Without a FILE: what all profiles together say for this device, by the order in which they are
searched: --profile of select, ATTNCTL_PROFILE, your own, the bundled ones.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, OtherMachine

EXAMPLES = """\b
Examples:
  attnctl profile show
  attnctl profile show mine.json
  attnctl profile show mine.json --rejected
  attnctl profile show --origin
  attnctl profile show --machine h200 --json

\b
Exit codes: 0 shown; 1 no profile fits this device; 2 one that does not read."""


def command(
    ctx: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A profile, or the name of one.")
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Only which profile serves each layer shape.")
    ] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="What could not win in FILE, and why.")
    ] = False,
    machine: OtherMachine = None,
    device: Device = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    if file is not None and (origin or machine):
        raise typer.BadParameter("--origin and --machine ask about all profiles: leave out FILE")
    if rejected and (file is None or json):
        raise typer.BadParameter("--rejected is a screen of one FILE; --json holds it anyway")
    output = ctx.obj.output
    if file is None:
        raise typer.Exit(_show_all(ctx, origin, machine, device, json))
    from os import environ

    from attnctl.profile.canonical import canonical, encode
    from attnctl.profile.find import open_profile
    from attnctl.render.output import remark

    found = open_profile(file, environ)
    for bad in found.profile.bad_entries if rejected or json else ():
        remark(bad)
    if rejected:
        from attnctl.render.profile_rejected import rejected_view

        output.view(rejected_view(canonical(found.profile).entries))
    elif json:
        output.text(encode(found.profile).decode())
    else:
        from attnctl.render.profile import profile_view

        whole = canonical(found.profile)
        output.view(profile_view(found.path, whole, found.profile.bad_entries))


def _show_all(
    ctx: typer.Context, origin: bool, machine: str | None, device: int, json: bool
) -> int:
    from os import environ

    from attnctl.exits import Exit
    from attnctl.profile.find import target
    from attnctl.profile.listing import layers
    from attnctl.profile.shelf import Shelf
    from attnctl.registry import load

    registry = load()
    where = target(machine, device, registry)
    fit = Shelf(None, environ).fit(where.machine, where.gpu, registry)
    if json:
        ctx.obj.output.json(layers(fit, timings=not origin))
    else:
        from attnctl.render.profile import layers_view

        ctx.obj.output.view(layers_view(fit, where.machine.name, only_origin=origin))
    return Exit.NO if fit.profile is None else Exit.OK
