"""Which attention backend serves a model on a machine, and why not each of the others.

Reads a config.json, decides for each group of layers, and shows every requirement that each
rejected backend failed: what it wanted, what was found, and what would help.
"""

from typing import Annotated

import typer

from attnctl.parameters import Device, Dtype, KvCacheDtype, Ranks, backends, machines

EXAMPLES = """\b
Examples:
  attnctl select --model config.json
  attnctl select --model config.json --machine h200 --kv-cache-dtype fp8
  attnctl select --model config.json --machine all
  attnctl select --model config.json --machine all --csv > picks.csv
  attnctl select --model config.json --backend mla=FLASHMLA
  attnctl select --model config.json --machine a100 --engine vllm
  attnctl select -m c.json --machine mi300x --engine-env VLLM_ROCM_USE_AITER=1
  attnctl select --model config.json --explain FLASHINFER --what-if
  attnctl select --model config.json --sweep context=1..131072,batch=8
  curl -s URL | attnctl select --model - --json

\b
Exit codes: 0 every group of layers has a backend; 1 one has none, or the
backend requested is not eligible; 2 wrong usage or unreadable input."""


def command(
    ctx: typer.Context,
    model: Annotated[
        list[str],
        typer.Option("--model", "-m", metavar="PATH", help="config.json, its folder, or -."),
    ],
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            metavar="NAME|FILE|all",
            autocompletion=machines,
            help="Another machine, or an arch (sm_121, gfx1151). Repeatable.",
        ),
    ] = None,
    assume_installed: Annotated[
        str | None,
        typer.Option(
            "--assume-installed",
            metavar="all|none|usual|LIST",
            help="Packages that count as installed. A LIST adds to what was found, its versions "
            "first, and is all that a bundled machine has. Default: those found; usual if bundled.",
        ),
    ] = None,
    dtype: Dtype = None,
    kv_cache_dtype: KvCacheDtype = "auto",
    block_size: Annotated[
        str | None,
        typer.Option(
            "--block-size",
            metavar="TOKENS|same",
            help="Tokens in a page of the KV cache; same: one size for all layers, as serving "
            "engines have it, the best by the timings.",
        ),
    ] = None,
    tp: Ranks = 1,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            "--max-model-len", metavar="TOKENS", help="Longest sequence, for the cache's cost."
        ),
    ] = None,
    speculative_tokens: Annotated[
        int, typer.Option("--speculative-tokens", metavar="N", help="Drafts verified in a step.")
    ] = 0,
    cache_memory: Annotated[
        str | None,
        typer.Option("--cache-memory", metavar="SIZE", help="What the cache may take, as 40GiB."),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            metavar="[KIND=]NAME",
            autocompletion=backends,
            help="Demand a backend. Repeatable.",
        ),
    ] = None,
    allow_fallback: Annotated[
        bool, typer.Option("--allow-fallback", help="Take the usual pick where it cannot serve.")
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="FILE|NAME|none",
            help="Timings that may reorder what is eligible, before ATTNCTL_PROFILE, your own and "
            "the bundled ones; none: no timings at all.",
        ),
    ] = None,
    mapped: Annotated[
        bool, typer.Option("--map", help="Also the pick at every timed point, with its knobs.")
    ] = False,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="AXIS=LOW..HIGH",
            help="Also where the choice changes along context, batch, query or head_size; "
            "context=1..131072,batch=8,phase=decode says the rest of the workload.",
        ),
    ] = None,
    device: Device = 0,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="NAME",
            autocompletion=backends,
            help="Show every finding of one backend.",
        ),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Which single change would give another pick.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="vllm", help="What this engine would pick, beside it."),
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", metavar="X.Y", help="Default: the newest table."),
    ] = None,
    engine_env: Annotated[
        list[str] | None,
        typer.Option(
            "--engine-env",
            metavar="NAME=VALUE",
            help="A variable of the engine's environment, as VLLM_ROCM_USE_AITER=1. Repeatable.",
        ),
    ] = None,
    vllm_args: Annotated[
        bool, typer.Option("--vllm-args", help="Only the flags that pin vLLM's picks.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="A row for each group of layers, as CSV.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The whole answer as JSON.")] = False,
) -> None:
    from os import environ

    from attnctl.engines.asked import asked_version, backends_and_environment
    from attnctl.exits import InputError
    from attnctl.machines import these
    from attnctl.model import read_model
    from attnctl.profile.places import shelf
    from attnctl.registry import load
    from attnctl.selection.answer import answers
    from attnctl.selection.devices import with_device
    from attnctl.selection.options import backend_name, read_options
    from attnctl.selection.shown import check_shown, show, show_arguments, show_rows

    version = asked_version(engine, engine_version, implied=bool(vllm_args or engine_env))
    backends, environment = backends_and_environment(version, engine_env, live=not machine)
    registry = load()
    options = read_options(
        registry,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        block_size=block_size,
        tp=tp,
        max_model_len=max_model_len,
        speculative_tokens=speculative_tokens,
        cache_memory=cache_memory,
        backend=backend or (),
        allow_fallback=allow_fallback,
        engine_backends=backends,
    )
    explained = None if explain is None else backend_name(explain, registry, "--explain")
    if model.count("-") > 1:
        raise InputError("--model -: standard input can be read once; name files for the others")
    specs = [read_model(path) for path in model]
    named = [found for name in machine or (None,) for found in these(name)]
    machines, left_out = with_device(named, device)
    added = {"--explain": explain, "--what-if": what_if, "--map": mapped, "--sweep": sweep}
    shown = [option for option, given in added.items() if given]
    check_shown(shown, len(specs) * len(named) > 1, vllm_args, json, csv)
    ask = None
    if sweep is not None:
        from attnctl.selection.sweep import read_ask

        ask = read_ask(sweep)
    reports = tuple(
        answers(
            specs,
            machines,
            registry,
            options,
            assume_installed=assume_installed,
            what_if=what_if,
            device=device,
            profiles=shelf(profile, environ),
            mapped=mapped,
            sweep=ask,
            engine=version,
            environment=environment,
        )
    )
    if csv:
        raise typer.Exit(show_rows(reports, ctx.obj.output, left_out))
    if vllm_args:
        raise typer.Exit(show_arguments(reports, ctx.obj.output, len(specs), left_out))
    raise typer.Exit(show(reports, ctx.obj.output, explained, json, len(specs), left_out))
