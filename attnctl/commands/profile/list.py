"""Every profile that is known here, your own before the bundled ones, and which fit this device."""

from typing import Annotated

import typer

from attnctl.parameters import Device, OtherMachine

EXAMPLES = """\b
Examples:
  attnctl profile list
  attnctl profile list --machine h200 --json

\b
Exit codes: 0 listed."""


def command(
    ctx: typer.Context,
    machine: OtherMachine = None,
    device: Device = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.profile.find import target
    from attnctl.profile.listing import listing
    from attnctl.registry import load

    found = listing(target(machine, device, load()), environ)
    if json:
        ctx.obj.output.json(found)
    else:
        from attnctl.render.profile import listing_view

        ctx.obj.output.view(listing_view(found))
