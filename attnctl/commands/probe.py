"""What this machine has: accelerators, processor, software, and what is wrong with them.

Starts no GPU context, imports no torch, and ends well on any machine: what could not be asked is
part of the answer, with the reason.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.parameters import machines

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
  attnctl probe --libs                 (which copies of CUDA, ROCm are loaded)

\b
Exit codes: 0 on any machine; 1 --diff found a difference; 2 wrong usage or
unreadable input."""

# two names for one file, of which the second to be used would destroy what the first is for
CLASHES = (("--save", "--record"), ("--save", "--replay"), ("--record", "--diff"))


def command(
    ctx: typer.Context,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="NAME|FILE",
            autocompletion=machines,
            help="Show a bundled or saved machine.",
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            "--save", metavar="FILE", help="Write a file for select --machine; - is stdout."
        ),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(
            "--record", metavar="FILE", help="Write a tape of all that was asked; - is stdout."
        ),
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
    libs: Annotated[
        bool, typer.Option("--libs", help="Copies of the GPU stack's libraries, and who has them.")
    ] = False,
    pid: Annotated[
        int | None, typer.Option("--pid", metavar="N", help="With --libs: one process only.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The answer as JSON.")] = False,
) -> None:
    output: Output = ctx.obj.output
    if libs or pid is not None:
        files = {"--save": save, "--record": record, "--replay": replay, "--diff": diff}
        _show_libraries(output, {"--machine": machine, **files}, libs, pid, json)
        return
    _refuse_clashes({"--save": save, "--record": record, "--replay": replay, "--diff": diff})
    shown = not _takes_stdout({"--save": save, "--record": record}, output, json, diff is not None)
    output.refuse_unwritable(*(path for path in (record, save) if path is not None))
    old = None if diff is None else _load(diff)  # --save may be about to replace this very file
    found, tape = _machine(machine, record is not None, replay)
    if record is not None:
        output.save(tape, record)
    if save is not None:
        from attnctl.machines.taping import machine_file

        output.save(machine_file(found), save)
    if old is not None:
        raise typer.Exit(_show_difference(diff or "", old, found, output, json))
    if json:
        output.json(found)
    elif shown:
        from attnctl.render.probe import probe_view

        output.view(probe_view(found, sources))


def _refuse_clashes(paths: dict[str, str | None]) -> None:
    """InputError where one file is named for two purposes, so that one would destroy the other."""
    for one, other in CLASHES:
        first, second = paths[one], paths[other]
        if first is not None and second is not None:
            from attnctl.documents.files import same_file
            from attnctl.exits import InputError

            if same_file(first, second):
                raise InputError(f"{one} and {other} both name {first}: give each its own file")


def _takes_stdout(
    files: dict[str, str | None], output: "Output", json: bool, differs: bool
) -> bool:
    """Whether a file goes to standard output, which then holds nothing else; else InputError."""
    taken = [name for name, path in files.items() if path is not None and output.is_at(path)]
    shown = [*(["--json"] if json else []), *(["--diff"] if differs else [])]
    if taken and len(taken) + len(shown) > 1:
        from attnctl.exits import InputError

        first, second = (*taken, *shown)[:2]
        raise InputError(f"{first} and {second} would both fill standard output: name a file")
    return bool(taken)


def _show_libraries(
    output: "Output",
    others: dict[str, str | None],
    libs: bool,
    pid: int | None,
    json: bool,
) -> None:
    from attnctl.exits import InputError
    from attnctl.probe.host import HostError
    from attnctl.probe.libraries import probe_libraries
    from attnctl.probe.realhost import RealHost

    if not libs:
        raise InputError("--pid says whose libraries: give it with --libs")
    if given := [name for name, value in others.items() if value is not None]:
        raise InputError(f"--libs asks this machine, and nothing else: leave out {given[0]}")
    try:
        found = probe_libraries(RealHost(), pid)
    except HostError as error:
        raise InputError(f"--pid {pid}: its memory map cannot be read: {error.detail}") from None
    if json:
        output.json(found)
    else:
        from attnctl.render.libraries import libraries_view

        output.view(libraries_view(found))


def _load(name: str) -> "Machine":
    from attnctl.machines import load

    return load(name)


def _machine(name: str | None, record: bool, replay: str | None) -> "tuple[Machine, bytes]":
    """The machine that was asked for, and its tape where one is wanted."""
    if name is not None:
        if record or replay is not None:
            from attnctl.exits import InputError

            raise InputError("--machine asks nothing: leave out --record and --replay")
        return _load(name), b""
    from attnctl.probe import probe

    if not record and replay is None:
        return probe(), b""
    from attnctl.machines.taping import probe_recorded, replay_of

    host = None if replay is None else replay_of(replay)
    return probe_recorded(host) if record else (probe(host), b"")


def _show_difference(
    name: str, old: "Machine", new: "Machine", output: "Output", json: bool
) -> int:
    from attnctl.exits import Exit
    from attnctl.machines.differences import differences

    found = differences(old, new)
    exit_code = Exit.NO if found else Exit.OK
    if json:
        document = {"schema": "attnctl.machine-diff/1", "old": name, "differences": found}
        output.json({**document, "exit_code": exit_code})
    else:
        from attnctl.render.difference import difference_view

        output.view(difference_view(name, found))
    return exit_code
