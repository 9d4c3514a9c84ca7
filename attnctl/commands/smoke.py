"""Runs every backend's kernels on small cases and compares them with the specification.

Each backend runs in a child process with a time limit per case, so that a kernel that crashes or
hangs costs its own case and nothing else. Without a GPU the Triton backends run in Triton's
interpreter, which proves their algebra and masks; the level that was reached is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attnctl.machine import Machine
    from attnctl.ops.case import Case
    from attnctl.registry import Backend, Registry

EXAMPLES = """\b
Examples:
  attnctl smoke --all
  attnctl smoke --backend CPU_ATTN --quick
  attnctl smoke --backend TRITON_ATTN --case 'paged(window=7)'
  attnctl smoke --list
  attnctl smoke --all --junit smoke.xml --json

\b
Exit codes: 0 every case that ran passed; 1 one is wrong, failed, crashed or
hung, or nothing ran; 2 wrong usage."""

LONGEST_CASE_S = 86_400.0  # a day: the system's timers take no number much larger


def command(
    ctx: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Every backend whose kernels are written.")
    ] = False,
    backend: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="One backend. Repeatable.")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="'op(...)'", help="One case, as a failure prints it. Repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Every fourth case of each.")] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Limit of one case.")] = 60.0,
    listing: Annotated[bool, typer.Option("--list", help="Name the cases and run none.")] = False,
    junit: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the results as JUnit XML too; - is stdout."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The whole result as JSON.")] = False,
) -> None:
    from attnctl.exits import Exit, InputError
    from attnctl.files import refuse_unwritable
    from attnctl.registry import load
    from attnctl.render.smoke import Progress, listing_view, smoke_view
    from attnctl.run import ended_by_signals
    from attnctl.smoke import plan, refuse_untaken, report, run_plan, summary, thinned

    output = ctx.obj.output
    to_stdout = junit is not None and output.is_at(junit)
    if every and backend:
        raise InputError("smoke: --all and --backend name different runs: leave out one of them")
    _check(every or bool(backend) or listing, timeout, json and to_stdout)
    if junit is not None and not to_stdout:
        refuse_unwritable(junit)  # now, and not after a run of many minutes
    registry = load()
    backends = _backends(backend, registry)
    cases = _cases(case)
    if case:
        refuse_untaken(cases, backends)
    machine = _machine()
    plans = [plan(one, machine, cases) for one in backends]
    if quick and not case:  # a case that was named is wanted
        plans = [thinned(one) for one in plans]
    if listing:
        output.json(plans) if json else output.view(listing_view(plans))
        raise typer.Exit(Exit.OK)
    progress = Progress(sum(len(one.runnable) for one in plans))
    with ended_by_signals():
        results = [summary(one, progress.watch(one, run_plan(one, timeout))) for one in plans]
    progress.close()
    found = report(results)
    if json:
        output.json(found)
    elif not to_stdout:
        output.view(smoke_view(found))
    if junit is not None:  # after the answer, which a disk that is full must not cost
        from attnctl.junit import junit_file

        output.save(junit_file(found), junit)
    raise typer.Exit(found.exit_code)


def _check(named: bool, timeout: float, both_to_stdout: bool) -> None:
    """InputError where the options do not make a run."""
    from attnctl.exits import InputError

    if not named:
        raise InputError("smoke: name a --backend, or say --all for every one with kernels")
    if not 0 < timeout <= LONGEST_CASE_S:  # not-a-number is refused too
        raise InputError(
            f"--timeout {timeout:g}: must be more than 0 and at most {LONGEST_CASE_S:g} seconds"
        )
    if both_to_stdout:
        raise InputError("--junit and --json would both fill standard output: name a file")


def _machine() -> Machine:
    from attnctl.probe import probe

    return probe()


def _backends(names: list[str] | None, registry: Registry) -> tuple[Backend, ...]:
    from attnctl.options import backend_name
    from attnctl.smoke import runnable_backends

    runnable = runnable_backends(registry)
    if not names:
        return runnable
    wanted = {backend_name(name, registry, "--backend") for name in names}
    _refuse_planned(wanted - {one.name for one in runnable})
    return tuple(one for one in runnable if one.name in wanted)


def _refuse_planned(names: set[str]) -> None:
    from attnctl.exits import InputError

    if names:
        text = ", ".join(sorted(names))
        raise InputError(f"smoke: {text}: no kernel is written yet, so there is nothing to run")


def _cases(texts: list[str] | None) -> tuple[Case, ...]:
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import all_cases, case_of

    if texts:
        return tuple(case_of(*split_case(text)) for text in texts)
    return all_cases()
