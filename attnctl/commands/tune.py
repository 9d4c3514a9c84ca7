"""Measures which backend and settings are fastest for a model here, and keeps a profile of it.

For each layer shape of the model and each point of a workload, every eligible backend is timed with
every valid setting of its kernels that the budget allows. None wins whose outputs differ from the
specification's. A candidate that crashes or hangs costs itself and nothing else. What has ended is
in a journal beside the profile: after an interruption, --resume goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attnctl.parameters import (
    Device,
    Dtype,
    KvCacheDtype,
    Ranks,
    backends,
    operations,
    workloads,
)

if TYPE_CHECKING:
    from attnctl.machine import Machine

EXAMPLES = """\b
Examples:
  attnctl tune --model config.json
  attnctl tune --model config.json --workload long-context --budget 30m
  attnctl tune -m config.json --workload points.json --backend TRITON_ATTN
  attnctl tune --model config.json --op paged -o h200.json
  attnctl tune --model config.json -o h200.json --resume

\b
The profile is added to your own, where select finds it; see attnctl profile.

\b
A workload FILE is a JSON list of points:
  [{"phase": "decode", "batch": 8, "context": 4096, "weight": 3},
   {"phase": "prefill", "batch": 1, "context": 2048, "query": 512}]

\b
Exit codes: 0 a profile was written; 1 nothing could be timed; 2 wrong usage
or unreadable input; 130 interrupted (go on with --resume)."""


def command(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="PATH", help="config.json, its folder, or -.")
    ],
    workload: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            autocompletion=workloads,
            help="chat, long-context, batch, or a JSON file.",
        ),
    ] = "chat",
    backend: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", autocompletion=backends, help="Time only this backend. Repeatable."
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP",
            autocompletion=operations,
            help="Tune only layers of this operation. Repeatable.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="About how long it may take: 90s, 10m (default), 2h."),
    ] = None,
    device: Device = 0,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The profile to write or add to, not your own."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a tune that was interrupted.")
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="Try everything in a fixed order, whatever it takes."),
    ] = False,
    dtype: Dtype = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    block_size: Annotated[
        int | None,
        typer.Option("--block-size", metavar="TOKENS", help="Tokens in a page of the KV cache."),
    ] = None,
    tp: Ranks = 1,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Limit of one candidate.")
    ] = 60.0,
    jobs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Children that compile and judge side by side on a GPU."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The whole result as JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.exits import InputError
    from attnctl.model import read_model
    from attnctl.processes.unwinding import ended_by_signals
    from attnctl.registry import load
    from attnctl.render.output import remark
    from attnctl.render.tune import Progress, tune_view
    from attnctl.selection.options import read_options
    from attnctl.tune.session import Request, tune
    from attnctl.tune.workload import read_workload

    ctx.obj.output.refuse_full()
    limit_s = _budget(budget, deterministic)
    if not 0 < timeout <= 86_400:
        raise InputError(f"--timeout {timeout:g}: must be more than 0 and at most 86400 seconds")
    if jobs is not None and not 1 <= jobs <= 64:
        raise InputError(f"--jobs {jobs}: must be from 1 to 64 children")
    if output is not None:
        if ctx.obj.output.is_at(output):
            raise InputError(f"--output {output}: a profile is added to, so that it must be a file")
        ctx.obj.output.refuse_unwritable(output)
    registry = load()
    request = Request(
        spec=read_model(model),
        registry=registry,
        options=read_options(
            registry, dtype=dtype, kv_cache_dtype=kv_cache_dtype, block_size=block_size, tp=tp
        ),
        loads=read_workload(workload),
        machine=_machine(),
        device=device,
        backends=_backends(backend, registry),
        ops=_ops(op),
        output=output,
        environ=dict(environ),
        resume=resume,
        budget_s=limit_s,
        timeout_s=timeout,
        jobs=jobs,
    )
    progress = Progress()
    try:
        with ended_by_signals():
            report = tune(request, progress)
    except (KeyboardInterrupt, SystemExit):
        progress.close()
        remark("tune: interrupted; the same command with --resume goes on after the last point")
        raise
    finally:
        progress.close()
    ctx.obj.output.json(report) if json else ctx.obj.output.view(tune_view(report))
    raise typer.Exit(report.exit_code)


def _budget(text: str | None, deterministic: bool) -> float | None:
    """Seconds; None for a run that the clock does not cut short."""
    from attnctl.exits import InputError
    from attnctl.tune.duration import seconds

    if deterministic:
        if text is not None:
            raise InputError(
                "--deterministic and --budget contradict each other: what a budget leaves out "
                "depends on the clock"
            )
        return None
    return seconds(text or "10m", "--budget")


def _machine() -> Machine:
    from attnctl.probe import probe

    return probe()


def _backends(names: list[str] | None, registry: object) -> tuple[str, ...]:
    from attnctl.selection.options import backend_name

    return tuple(backend_name(name, registry, "--backend") for name in names or ())  # type: ignore[arg-type]


def _ops(names: list[str] | None) -> tuple[str, ...]:
    from attnctl.exits import InputError
    from attnctl.layer import OPS
    from attnctl.nearest import did_you_mean

    known = (*dict.fromkeys(OPS.values()), "diffkv")
    for name in names or ():
        if name not in known:
            hint = did_you_mean(name, known) or f" Known are {', '.join(known)}."
            raise InputError(f"--op {name}: no such operation.{hint}")
    return tuple(names or ())
