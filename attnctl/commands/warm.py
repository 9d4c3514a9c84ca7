"""Compiles ahead what a profile names for this machine, so that the first request compiles nothing.

For each layer shape of the profile every setting that a batch may be given runs once, on batches
up to the largest that was timed: Triton's kernels and the C++ sources of processors come into
their caches, where every later process finds them. Nothing is measured. The batches take next to
no memory, so that it may run beside a server.
"""

from __future__ import annotations

from typing import Annotated

import typer

from attnctl.parameters import Device, profiles

EXAMPLES = """\b
Examples:
  attnctl warm --profile h200
  attnctl warm --profile tuned.json --device 1
  attnctl warm --profile tuned.json --jobs 4 --json

\b
Exit codes: 0 everything is compiled; 1 the profile is of another device, or a
setting failed; 2 wrong usage, or a profile that does not read."""


def command(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="FILE",
            autocompletion=profiles,
            help="A profile, or the name of one.",
        ),
    ],
    device: Device = 0,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Children that compile side by side.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Limit of one setting of a layer shape.")
    ] = 300.0,
    json: Annotated[bool, typer.Option("--json", help="The whole result as JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.exits import InputError
    from attnctl.processes.unwinding import ended_by_signals
    from attnctl.profile.find import open_profile, target
    from attnctl.registry import load
    from attnctl.render.warm import WarmBar, warm_view
    from attnctl.warming.plan import wanted
    from attnctl.warming.run import warm

    ctx.obj.output.refuse_full()
    if jobs is not None and not 1 <= jobs <= 64:
        raise InputError(f"--jobs {jobs}: must be from 1 to 64 children")
    if not 0 < timeout <= 86_400:
        raise InputError(f"--timeout {timeout:g}: must be more than 0 and at most 86400 seconds")
    path, found = open_profile(profile, environ)
    registry = load()
    where = target(None, device, registry)
    asked = wanted(path, found, where.machine, device, registry)
    bar = WarmBar()
    bar.total = len(asked.jobs)
    try:
        with ended_by_signals():
            report = warm(
                path, asked, where.machine, device, jobs=jobs, timeout_s=timeout, told=bar.told
            )
    finally:
        bar.close()
    ctx.obj.output.json(report) if json else ctx.obj.output.view(warm_view(report))
    raise typer.Exit(report.exit_code)
