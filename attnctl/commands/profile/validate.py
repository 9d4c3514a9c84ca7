"""Whether profiles read, agree with their own timings, and name kernels that are unchanged.

Checks one's own and the bundled profiles where no FILE is given. How a profile fits this device is
said as well; one of other hardware or other versions is not at fault for that.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, OtherMachine

EXAMPLES = """\b
Examples:
  attnctl profile validate
  attnctl profile validate mine.json --json
  attnctl profile validate mine.json --machine h200

\b
Exit codes: 0 all hold; 1 an entry is broken, contradicts its timings, or is
of a kernel that has changed, or one that nobody named does not read; 2 a FILE
that does not read as a whole."""


def command(
    ctx: typer.Context,
    file: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE...]", help="Profiles, or names.")
    ] = None,
    machine: OtherMachine = None,
    device: Device = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON, a list.")] = False,
) -> None:
    from os import environ

    from attnctl.exits import Exit
    from attnctl.profile.checks import check
    from attnctl.profile.find import known_files, open_found, open_profiles, target
    from attnctl.profile.hashes import KernelHashes
    from attnctl.registry import load
    from attnctl.render.output import remark

    damaged: list[str] = []
    if file:
        profiles = open_profiles(file, environ)
    else:
        profiles, damaged = open_found(known_files(environ))
    for sentence in damaged:
        remark(sentence)
    registry, hashes = load(), KernelHashes()
    where = target(machine, device, registry)
    found = [
        check(path, profile, registry, where.machine, where.gpu, hashes)
        for path, profile in profiles
    ]
    if json:
        ctx.obj.output.json(found)
    else:
        from attnctl.render.profile_checks import checks_view

        ctx.obj.output.view(checks_view(found, where.machine.name))
    codes = [one.exit_code for one in found]
    raise typer.Exit(max(codes, default=Exit.OK) if not damaged else Exit.NO)
