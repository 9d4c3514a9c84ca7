"""Checks of what runs: the runtime's protocol, its block sizes, and its operation's cases."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnctl.conformance import Asked, fail
from attnctl.exits import InputError
from attnctl.registry import Backend, Registry
from attnctl.smoke.planning import Plan, plan, run_plan
from attnctl.smoke.quick import quick

if TYPE_CHECKING:
    from attnctl.ops.case import Case
    from attnctl.smoke.trials import Trial

MOST_SHOWN = 5
"""Cases that a failure prints; the others are counted."""


def check_runtime(backend: Backend, registry: Registry) -> None:
    """kernel.py has RUNTIME with every method of its operation's protocol, callable as there."""
    from attnctl.runtime import open_backend

    try:
        runtime = open_backend(backend.name, registry)
    except Exception as error:
        fail(
            backend,
            f"its runtime does not open: {type(error).__name__}: {error}; {backend.module}.kernel "
            "must hold RUNTIME",
        )
    protocol = _protocol(backend)
    for name, method in vars(protocol).items():
        if not name.startswith("_") and inspect.isfunction(method):
            _check_method(backend, runtime, protocol.__name__, name, method)
    for name, wanted in (("get_name", backend.name), ("is_ssm", backend.is_ssm)):
        found = getattr(runtime, name)()
        if found != wanted:
            fail(backend, f"RUNTIME.{name}() gives {found!r}, its declaration says {wanted!r}")


def check_block_sizes(backend: Backend, registry: Registry) -> None:
    """cache_shape takes each block size that is declared, and refuses none, less and others."""
    if backend.is_ssm:
        return
    from attnctl.runtime import open_backend

    runtime = open_backend(backend.name, registry)
    widths = (1, 64) if _protocol(backend).__name__ == "PagedRuntime" else (512, 64)
    for platform in {rank.platform for rank in backend.ranks}:
        for size in backend.block_units(platform) or (16,):
            shape = _shape(backend, runtime, size, widths)
            if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
                fail(backend, f"cache_shape with pages of {size} gives {shape!r}, wanted a tuple")
    units = {n for rank in backend.ranks for n in backend.block_units(rank.platform)}
    for size in (0, -1, *((min(units) + 1,) if units and min(units) > 1 else ())):
        try:
            shape = runtime.cache_shape(4, size, *widths)
        except InputError:
            continue
        except Exception as error:
            fail(
                backend,
                f"cache_shape with pages of {size} raises {type(error).__name__}, wanted an "
                "attnctl.exits.InputError whose sentence names the sizes that it takes",
            )
        fail(backend, f"cache_shape takes pages of {size} ({shape!r}), wanted an InputError")


def check_cases(asked: Asked) -> None:
    """Every case that its rules take passes here, in a child process; one at least must run."""
    from attnctl.probe import probe

    backend = asked.backend
    wanted = _cases(asked)
    made = plan(backend, probe(), wanted)
    if asked.quick and not asked.cases:
        (made,) = quick([made])
    trials = list(run_plan(made, asked.timeout_s, twice=asked.deterministic))
    bad = [trial for trial in trials if trial.status not in ("pass", "unsupported", "unknown")]
    if bad:
        fail(backend, _said(backend, made, bad))
    if not made.runnable:
        fail(backend, f"none of {len(wanted)} cases runs on this machine: {_why_not(trials)}")


def _cases(asked: Asked) -> tuple[Case, ...]:
    from attnctl.ops.case import split_case
    from attnctl.ops.catalog import all_cases, case_of

    if asked.cases:
        return tuple(case_of(*split_case(text)) for text in asked.cases)
    return all_cases()


def _said(backend: Backend, made: Plan, bad: list[Trial]) -> str:
    lines = [f"{len(bad)} of {len(made.runnable)} cases failed on {made.device}"]
    for trial in bad[:MOST_SHOWN]:
        lines.append(f"  {trial.status}: {trial.case}: {trial.detail}")
        lines.append(f"    again: attnctl smoke --backend {backend.name} --case '{trial.case}'")
    if len(bad) > MOST_SHOWN:
        lines.append(f"  and {len(bad) - MOST_SHOWN} more")
    return "\n".join(lines)


def _why_not(trials: list[Trial]) -> str:
    reasons = {
        f"{one.wanted} wanted, {one.found} found" for trial in trials for one in trial.reasons
    }
    return "; ".join(sorted(reasons)[:MOST_SHOWN]) or "its operations have none"


def _protocol(backend: Backend) -> type:
    from attnctl.latent_runtime import MlaRuntime, MlaSparseRuntime
    from attnctl.runtime import PagedRuntime, StateRuntime

    if backend.is_ssm:
        return StateRuntime
    if "mla_sparse" in backend.ops:
        return MlaSparseRuntime
    return MlaRuntime if "mla" in backend.ops else PagedRuntime


def _check_method(
    backend: Backend, runtime: Any, protocol: str, name: str, wanted: Callable[..., Any]
) -> None:
    """The method is there and takes what the protocol's takes: by place, or by name after *."""
    method = getattr(runtime, name, None)
    if not callable(method):
        fail(backend, f"RUNTIME has no method {name}; it must be a {protocol} (attnctl.runtime)")
    places: list[None] = []
    names: dict[str, None] = {}
    for parameter in list(inspect.signature(wanted).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.name == "out":
            names[parameter.name] = None
        elif parameter.name not in ("lse", "chunk"):  # given by name too, after out
            places.append(None)
    try:
        inspect.signature(method).bind(*places, **names)
    except TypeError as error:
        fail(backend, f"RUNTIME.{name} cannot be called as {protocol}.{name} is: {error}")


def _shape(backend: Backend, runtime: Any, size: int, widths: tuple[int, int]) -> Any:
    try:
        return runtime.cache_shape(4, size, *widths)
    except Exception as error:
        fail(
            backend,
            f"cache_shape refuses pages of {size}, which are declared: "
            f"{type(error).__name__}: {error}",
        )
