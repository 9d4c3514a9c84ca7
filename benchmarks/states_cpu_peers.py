"""What of torch's computes a state-space operation on a processor, as calls on the same tensors.

eager: the bundled fallback. compiled: torch.compile of the chunked form where there is one, else of
one token's step; the walk over chunks stays in Python, for unrolled it takes minutes to compile.
A peer is None where it has no such operation. Each leaves its outputs in what it returns, and works
on states of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from states_problems import Problem
from states_torch import (
    conv_rows,
    gdn_chunk,
    gdn_step,
    linear_chunk,
    linear_step,
    mamba1_step,
    mamba2_chunk,
    mamba2_step,
)
from torch import Tensor

Run = Callable[[], Tensor]
CHUNK = 64


def eager(problem: Problem) -> Run:
    forward = import_module(f"attnctl.kernels.eager.{problem.shape.op}").forward
    state, metadata = problem.state.clone(), problem.metadata()
    out = torch.empty_like(problem.out)

    def run() -> Tensor:
        forward(problem.inputs, state, metadata, out)
        return out

    return run


def compiled(problem: Problem) -> Run | None:
    shape = problem.shape
    if shape.drafts:
        return None
    make = _COMPILED[shape.op]
    return make(problem, problem.state.clone(), problem.slots[:, 0].long())


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def _rows(tensor: Tensor, problem: Problem) -> Tensor:
    """[T, ...] of equal rows as [B, tokens, ...]."""
    return tensor.unflatten(0, (problem.shape.batch, problem.shape.queries))


def _chunks(
    problem: Problem, state: Tensor, slots: Tensor, chunk: Any, tokens: tuple[str, ...], rest: Any
) -> Run:
    function, out = _compile(chunk), torch.empty_like(problem.out)
    rows = [_rows(getattr(problem.inputs, name), problem) for name in tokens]
    target = _rows(out, problem)

    def run() -> Tensor:
        carried = state[slots]
        for begin in range(0, problem.shape.queries, CHUNK):
            part = slice(begin, begin + CHUNK)
            carried, target[:, part] = function(carried, *(x[:, part] for x in rows), *rest)
        state[slots] = carried
        return out

    return run


def _steps(
    problem: Problem, state: Tensor, slots: Tensor, step: Any, tokens: tuple[str, ...], rest: Any
) -> Run:
    function, out = _compile(step), torch.empty_like(problem.out)
    rows = [_rows(getattr(problem.inputs, name), problem) for name in tokens]
    target = _rows(out, problem)

    def run() -> Tensor:
        for t in range(problem.shape.queries):
            target[:, t] = function(state, slots, *(x[:, t] for x in rows), *rest)
        return out

    return run


def _compiled_gdn(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    rest = (x.a_log, x.dt_bias, x.scale)
    if problem.shape.queries > 1:
        return _chunks(problem, state, slots, gdn_chunk, x.per_token, rest)
    function, rows = _compile(gdn_step), [_rows(getattr(x, n), problem) for n in x.per_token]
    return lambda: function(state, slots, *rows, *rest).flatten(0, 1)


def _compiled_mamba1(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    return _steps(problem, state, slots, mamba1_step, x.per_token, (x.a, x.d, x.dt_bias))


def _compiled_mamba2(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x, tokens = problem.inputs, ("x", "dt", "b", "c")
    walk, function = (_chunks, mamba2_chunk) if problem.shape.queries > 1 else (_steps, mamba2_step)
    return walk(problem, state, slots, function, tokens, (x.a, x.d, x.dt_bias))


def _compiled_linear(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x = problem.inputs
    walk, function = (_chunks, linear_chunk) if problem.shape.queries > 1 else (_steps, linear_step)
    return walk(problem, state, slots, function, x.per_token, (x.slope,))


def _compiled_conv(problem: Problem, state: Tensor, slots: Tensor) -> Run:
    x, function = problem.inputs, _compile(conv_rows)
    rows = _rows(x.x, problem)
    return lambda: function(state, slots, rows, x.weight, x.bias).flatten(0, 1)


_COMPILED = {
    "gdn": _compiled_gdn,
    "mamba1": _compiled_mamba1,
    "mamba2": _compiled_mamba2,
    "short_conv": _compiled_conv,
    "linear": _compiled_linear,
}
