"""Writes what was measured on this device as one document.

Of several (made with other versions of torch or Triton) it takes the one of the versions that are
here, or the latest. The same measurements give the same bytes.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, WhoseMachine

EXAMPLES = """\b
Examples:
  attnctl profile export mine.json
  attnctl profile export - | jq '.entries[].gain'
  attnctl profile export h200.json --machine h200

\b
Exit codes: 0 written; 1 nothing was measured on this device; 2 wrong usage,
or a file that does not read."""


def command(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")],
    machine: WhoseMachine = None,
    device: Device = 0,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the document calls itself.")
    ] = None,
) -> None:
    from os import environ

    import msgspec

    from attnctl.exits import Exit
    from attnctl.profile.canonical import encode
    from attnctl.profile.document import key_of
    from attnctl.profile.find import own_of, target
    from attnctl.profile.store import refuse_unknown
    from attnctl.registry import load
    from attnctl.render.output import remark

    ctx.obj.output.refuse_unwritable(file)
    where = target(machine, device, load())
    found, damaged = own_of(where, environ)
    for sentence in damaged:
        remark(sentence)
    if not found:
        here = key_of(where.machine, where.gpu)
        remark(f"nothing was measured on {here}; do it with: attnctl tune --model config.json")
        raise typer.Exit(Exit.NO)
    profile = found[0].profile
    refuse_unknown(profile)
    if name is not None:
        profile = msgspec.structs.replace(profile, name=name)
    for bad in profile.bad_entries:
        remark(bad)
    ctx.obj.output.save(encode(profile), file)
