"""Writes one archive for a bug report: this machine, what was decided on it, and what is broken.

It holds the probe with a tape that replays elsewhere, the registry, the check of the profiles, and
with --model and --smoke what select and smoke answer. Paths, names of people and hosts, serial
numbers and tokens are struck out, and nothing is sent anywhere.
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attnctl.smoke.request import Request

EXAMPLES = """\b
Examples:
  attnctl report
  attnctl report --model config.json -o slow-mla.zip
  attnctl report --model config.json --smoke

\b
Exit codes: 0 written; 1 written, less a part that could not be made
(about.json says why); 2 wrong usage, or a file that cannot be used."""


def command(
    ctx: typer.Context,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.zip", help="Default: attnctl-report.zip."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", metavar="PATH", help="config.json, or its folder. Repeatable."
        ),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run a fourth of all cases too; takes minutes.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="What is in it, as JSON.")] = False,
) -> None:
    from attnctl.bug_report.archive import FILE, archive, bug_report
    from attnctl.bug_report.private_names import here
    from attnctl.documents.files import same_file, write_whole
    from attnctl.exits import Exit, InputError

    path = FILE if output is None else output
    if path == "-" or ctx.obj.output.is_at(path):
        raise InputError(f"--output {path}: an archive is no text: name a file")
    ctx.obj.output.refuse_unwritable(path)
    ctx.obj.output.refuse_full()
    for one in model or ():
        if same_file(path, one) or same_file(path, f"{one}/config.json"):
            raise InputError(f"--output {path}: it is the --model; name another file")
    made = bug_report(model or (), here(), smoke=_quick() if smoke else None)
    write_whole(path, archive(made))
    if json:
        sizes = {part.name: len(part.data) for part in made.parts}
        ctx.obj.output.json({"file": path, "bytes": sizes, "left_out": made.left_out})
    else:
        from attnctl.render.bug_report import bug_report_view

        ctx.obj.output.view(bug_report_view(path, made))
    raise typer.Exit(Exit.NO if made.left_out else Exit.OK)


def _quick() -> "Request":
    """Smoke's quick run of every backend."""
    from attnctl.smoke.request import Request

    return Request(every=True, quick=True)
