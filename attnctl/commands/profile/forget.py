"""Deletes your own profiles of this device, of every version of torch and Triton.

Bundled ones stay, and so do files elsewhere. `attnctl profile export` keeps a copy before.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, WhoseMachine

EXAMPLES = """\b
Examples:
  attnctl profile forget
  attnctl profile forget --all

\b
Exit codes: 0 deleted, or there was none; 2 a file that cannot be deleted."""


def command(
    ctx: typer.Context,
    machine: WhoseMachine = None,
    device: Device = 0,
    every: Annotated[
        bool, typer.Option("--all", help="Those of every device, and what does not read.")
    ] = False,
) -> None:
    from os import environ
    from os.path import lexists
    from pathlib import Path

    from attnctl.profile.find import own_of, target
    from attnctl.profile.places import user_files
    from attnctl.profile.store import remove
    from attnctl.registry import load
    from attnctl.render.output import remark

    if every:
        paths = user_files(environ)
    else:
        found, damaged = own_of(target(machine, device, load()), environ)
        for sentence in damaged:
            remark(f"{sentence}; --all deletes it")
        paths = tuple(Path(one.path) for one in found)
    try:
        remove(paths, environ)
    finally:
        for path in paths:
            if not lexists(path):
                ctx.obj.output.text(f"{path}: deleted\n")
    if not paths:
        ctx.obj.output.text("there is none\n")
