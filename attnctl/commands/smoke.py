"""Runs every backend's kernels on small cases and compares them with the specification.

Each backend runs in a child process with a time limit per case, so that a kernel that crashes or
hangs costs its own case and nothing else. Without a GPU the Triton backends run in Triton's
interpreter, which proves their algebra and masks; the level that was reached is shown.

With --perf each case that was proven right is timed as well, one after the other, and its time is
set against the least that this device needs for it; --baseline names what became slower since an
earlier run. What is interpreted is never timed.

With --compile-for nothing runs: Triton's compiler makes the bundled kernels for GPUs that need not
be here, and what would not load, would spill or would miss the matrix unit there is bad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.parameters import backends, operations

if TYPE_CHECKING:
    from attnctl.render.output import Output
    from attnctl.smoke.request import Request

EXAMPLES = """\b
Examples:
  attnctl smoke --all
  attnctl smoke --backend CPU_ATTN --quick
  attnctl smoke --backend TRITON_ATTN --case 'paged(window=7)'
  attnctl smoke --all --model config.json --device cuda:1
  attnctl smoke --all --junit smoke.xml --json
  attnctl smoke --self-test
  attnctl smoke --all --perf --json > before.json
  attnctl smoke --all --perf --baseline before.json
  attnctl smoke --compile-for sm_90,gfx942 --json > now.json
  attnctl smoke --compile-for all --baseline before.json

\b
Exit codes: 0 every case that ran passed; 1 one is wrong, failed, crashed or
hung, nothing ran, or something is worse or slower than the baseline; 2 wrong
usage."""


def command(
    ctx: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Every backend whose kernels are written.")
    ] = False,
    backend: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", autocompletion=backends, help="One backend. Repeatable."),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP", autocompletion=operations, help="Cases of one operation only. Repeatable."
        ),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(metavar="'op(...)'", help="One case, as a failure prints it. Repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Cases of the layers of a model's config.json."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="cpu, interpret, cuda, cuda:N or xpu."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Each phase and each kind of option once; of a compilation, each kernel once.",
        ),
    ] = False,
    determinism: Annotated[
        bool, typer.Option("--determinism", help="Run each case twice; both must agree to the bit.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Limit of one case: 60, of a compilation 300."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Name the cases and run none.")] = False,
    support: Annotated[
        bool, typer.Option("--support", help="Count what each backend takes and say why not more.")
    ] = False,
    perf: Annotated[
        bool, typer.Option("--perf", help="Time what is right, at serving sizes too.")
    ] = False,
    slower: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="How much slower than the baseline is bad: 10."),
    ] = None,
    compile_for: Annotated[
        str | None,
        typer.Option(metavar="TARGETS", help="Compile for sm_90,gfx942,... instead; all: nine."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What changed since this --json of --perf, or of a compilation."
        ),
    ] = None,
    spills: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="What a thread may spill when compiled: 512."),
    ] = None,
    every_knob: Annotated[
        bool, typer.Option("--every-knob", help="Compile each setting that tune would try, too.")
    ] = False,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Note each launch of --every-knob there, and go on from it."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Children that compile side by side: one a core."),
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Plant faults into kernels; each must be caught."),
    ] = False,
    junit: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the results as JUnit XML too; - is stdout."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The whole result as JSON.")] = False,
) -> None:
    from attnctl.documents.files import same_file
    from attnctl.exits import Exit, InputError
    from attnctl.smoke.request import Request
    from attnctl.smoke.running import prepare, run

    output = ctx.obj.output
    output.refuse_full()  # now, and not after a run of many minutes
    to_stdout = junit is not None and output.is_at(junit)
    request = Request(
        every=every,
        backends=tuple(backend or ()),
        ops=tuple(op or ()),
        cases=tuple(case or ()),
        model=model,
        device=device,
        quick=quick,
        twice=determinism,
        timeout_s=timeout,
        listing=listing or support,
        perf=perf,
        slower_percent=slower,
        targets=compile_for,
        baseline=baseline,
        most_spills_bytes=spills,
        every_knob=every_knob,
        journal=journal,
        jobs=jobs,
    )
    if self_test:
        if request != Request() or junit is not None:
            raise InputError("--self-test goes with --json alone: it has cases of its own")
        _need("torch", "--self-test")
        raise typer.Exit(_self_test(output, json))
    _refuse(request, both_to_stdout=json and to_stdout)
    if junit is not None and not to_stdout:
        output.refuse_unwritable(junit)
        named = (("--model", model), ("--baseline", baseline), ("--journal", journal))
        for name, used in named:
            if used and (same_file(junit, used) or same_file(junit, f"{used}/config.json")):
                raise InputError(f"--junit {junit}: it is the {name}; name another file")
    prepared = prepare(request)
    if request.listing:
        from attnctl.render.smoke import listing_view, support_view

        view = support_view if support else listing_view
        output.json(prepared.plans) if json else output.view(view(prepared.plans))
        raise typer.Exit(Exit.OK)
    if compile_for is not None:
        _need("torch", "--compile-for")
        _need("triton", "--compile-for")
    found = run(prepared)
    if json:
        output.json(found)
    elif not to_stdout:
        from attnctl.render.smoke import smoke_view

        output.view(smoke_view(found))
    if junit is not None:  # after the answer, which a disk that is full must not cost
        from attnctl.smoke.junit import junit_file

        output.save(junit_file(found), junit)
    raise typer.Exit(found.exit_code)


def _need(package: str, option: str) -> None:
    """InputError where a package is not installed without which every case would fail alike."""
    from importlib.util import find_spec

    from attnctl.exits import InputError

    if find_spec(package) is None:
        raise InputError(f"{option} needs {package}: pip install 'attnctl[kernels]'")


def _self_test(output: Output, json: bool) -> int:
    from attnctl.selftest.run import self_test

    found = self_test()
    if json:
        output.json(found)
    else:
        from attnctl.render.self_test import self_test_view

        output.view(self_test_view(found))
    return found.exit_code


def _refuse(request: Request, *, both_to_stdout: bool) -> None:
    """InputError where the options do not make a run."""
    from attnctl.exits import InputError
    from attnctl.smoke.request import refuse

    refuse(request)
    if both_to_stdout:
        raise InputError("--junit and --json would both fill standard output: name a file")
