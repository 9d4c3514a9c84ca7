"""The two ways in which a processor advances states, and float32 batches to try them on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.cpu.state_call import NativeStates, open_states
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.ops.states import over_tensors, take
from attnctl.probe.realhost import RealHost
from attnctl.runtime import StateMetadata
from tests.ops.state_batches import NAN, OPS, generator_of, packed

Form = Callable[[str, Any, Tensor, StateMetadata, Tensor], bool]


@cache
def native() -> NativeStates:
    kernels, finding = open_states(RealHost())
    assert kernels is not None, finding
    return kernels


def compiled(op: str, inputs: Any, pool: Tensor, metadata: StateMetadata, out: Tensor) -> bool:
    return native().forward(op, inputs, pool, metadata, out)


def eager(op: str, inputs: Any, pool: Tensor, metadata: StateMetadata, out: Tensor) -> bool:
    import_module(f"attnctl.kernels.eager.{op}").forward(inputs, pool, metadata, out)
    return True


FORMS: dict[str, Form] = {"compiled": compiled, "eager": eager}

# rows and widths that fill registers: the fast ways through the kernels
_HEADS, _WIDE = 4, 32


def _whole(op: str, tokens: int, seed: int) -> tuple[Any, tuple[int, ...]]:
    draw = partial(torch.randn, generator=generator_of(seed))
    keys = draw(tokens, 2, _WIDE), draw(tokens, 2, _WIDE)
    if op == "gdn":
        q, k = keys
        v, g = draw(tokens, _HEADS, 16), -draw(tokens, _HEADS).abs() * 0.2
        beta = draw(tokens, _HEADS).sigmoid()
        gdn = Gdn(q=q, k=k, v=v, g=g, beta=beta, scale=_WIDE**-0.5, l2norm=True)
        return gdn, (_HEADS, 16, _WIDE)
    if op == "mamba1":
        x, dt, z = (draw(tokens, 96) for _ in range(3))
        b, c = draw(tokens, 16), draw(tokens, 16)
        a, d, bias = -draw(96, 16).exp(), draw(96), draw(96) - 2.0
        return Mamba1(x=x, dt=dt, b=b, c=c, a=a, z=z, d=d, dt_bias=bias), (96, 16)
    if op == "mamba2":
        b, c = keys
        x, dt = draw(tokens, _HEADS, 48), draw(tokens, _HEADS)
        a, d, bias = -draw(_HEADS).exp(), draw(_HEADS), draw(_HEADS) - 2.0
        return Mamba2(x=x, dt=dt, b=b, c=c, a=a, d=d, dt_bias=bias), (_HEADS, 48, _WIDE)
    if op == "linear":
        q, k = draw(tokens, _HEADS, _WIDE) * 0.2, draw(tokens, _HEADS, _WIDE) * 0.2
        v, slope = draw(tokens, _HEADS, 48), draw(_HEADS).abs()
        return Linear(q=q, k=k, v=v, slope=slope, scale=0.3), (_HEADS, _WIDE, 48)
    x, weight, bias = draw(tokens, 320), draw(320, 4), draw(320)
    return ShortConv(x=x, weight=weight, bias=bias, activation="silu"), (3, 320)


WHOLE = ("gdn", "mamba1", "mamba2", "linear", "short_conv")
SIZES = (*WHOLE, *(f"odd {name}" for name in OPS))


def op_of(size: str) -> str:
    return size.removeprefix("odd ").split(",")[0].split(" ")[0].replace("kda", "gdn")


def make(size: str, tokens: int, seed: int) -> tuple[Any, tuple[int, ...]]:
    """Float32 inputs of T tokens and the shape of a slot."""
    if not size.startswith("odd "):
        return _whole(size, tokens, seed)
    op = OPS[size.removeprefix("odd ")]
    return over_tensors(op.make(tokens, generator_of(seed)), Tensor.float), op.state


def run(form: Form, size: str, inputs: Any, pool: Tensor, metadata: StateMetadata) -> Tensor:
    """Outputs [T, ...], NaN where nothing was written."""
    shape = inputs.v.shape if hasattr(inputs, "v") else inputs.x.shape
    out = torch.full(shape, NAN)
    assert form(op_of(size), inputs, pool, metadata, out), "the kernels did not take the batch"
    return out


def feed(
    form: Form, size: str, inputs: Any, state: tuple[int, ...], pieces: list[int], first: Any = None
) -> tuple[Tensor, Tensor]:
    """Outputs and final state of one sequence fed in pieces; its slot is one of many, all NaN."""
    pool = torch.full((5, *state), NAN)
    known = first is not None
    if known:
        pool[3] = first
    rows, begin = [], 0
    for count in pieces:
        part = take(inputs, slice(begin, begin + count))
        rows.append(run(form, size, part, pool, packed([count], [[3]], [known])))
        begin, known = begin + count, known or count > 0
    assert pool[[0, 1, 2, 4]].isnan().all(), "a slot of nobody was written"
    return torch.cat(rows), pool[3]
