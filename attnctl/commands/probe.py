"""What this machine has: accelerators, processor, software, and what is wrong with them.

Starts no GPU context, imports no torch, and ends well on any machine: what could not be asked is
part of the answer, with the reason.
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attnctl.machine import Machine
    from attnctl.render.output import Output

EXAMPLES = """\b
Examples:
  attnctl probe
  attnctl probe --json
  attnctl probe --save this.json       (for select --machine)
  attnctl probe --record tape.json     (for a bug report)
  attnctl probe --diff before.json     (what an upgrade changed for selection)

\b
Exit codes: 0 on any machine; 1 --diff found a difference; 2 wrong usage or
unreadable input."""


def command(
    ctx: typer.Context,
    machine: Annotated[
        str | None,
        typer.Option("--machine", metavar="NAME|FILE", help="Show a bundled or saved machine."),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="FILE", help="Write a file for select --machine."),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option("--record", metavar="FILE", help="Write a tape of all that was asked."),
    ] = None,
    replay: Annotated[
        str | None,
        typer.Option("--replay", metavar="FILE", help="Probe a tape in place of this machine."),
    ] = None,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff", metavar="FILE", help="What changes a selection since that machine file."
        ),
    ] = None,
    sources: Annotated[
        bool, typer.Option("--sources", "-v", help="Show where every fact came from.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The machine as JSON.")] = False,
) -> None:
    found = _machine(machine, record, replay)
    if save:
        from attnctl.taping import save_machine

        save_machine(found, save)
    output: Output = ctx.obj.output
    if diff is not None:
        raise typer.Exit(_show_difference(diff, found, output, json))
    if json:
        output.json(found)
    else:
        from attnctl.render.probe import probe_view

        output.view(probe_view(found, sources))


def _machine(name: str | None, record: str | None, replay: str | None) -> "Machine":
    if name is not None:
        if record or replay:
            raise typer.BadParameter("--machine asks nothing: leave out --record and --replay")
        from attnctl.machines import load

        return load(name)
    if record is None and replay is None:
        from attnctl.probe import probe

        return probe()
    from attnctl.taping import probe_recorded, probe_replayed

    return probe_recorded(record or "") if replay is None else probe_replayed(replay, record)


def _show_difference(old: str, new: "Machine", output: "Output", json: bool) -> int:
    from attnctl.exits import Exit
    from attnctl.machine_diff import differences
    from attnctl.machines import load

    found = differences(load(old), new)
    exit_code = Exit.NO if found else Exit.OK
    if json:
        document = {"schema": "attnctl.machine-diff/1", "old": old, "differences": found}
        output.json({**document, "exit_code": exit_code})
    else:
        from attnctl.render.difference import difference_view

        output.view(difference_view(old, found))
    return exit_code
