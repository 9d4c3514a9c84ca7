"""Small float64 batches of every state-space operation, and ways to cut them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from attnctl.ops.gdn import Gdn, gdn
from attnctl.ops.linear import Linear, linear
from attnctl.ops.mamba1 import Mamba1, mamba1
from attnctl.ops.mamba2 import Mamba2, mamba2
from attnctl.ops.short_conv import ShortConv, short_conv
from attnctl.ops.states import take
from attnctl.runtime import StateMetadata

NAN = float("nan")


class Op(NamedTuple):
    """An operation under test: `run` is the specification, `make` draws inputs of T tokens."""

    make: Callable[[int, torch.Generator], Any]
    run: Callable[..., Tensor]
    state: tuple[int, ...]


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def make_gdn(tokens: int, generator: torch.Generator, **changes: Any) -> Gdn:
    draw = partial(normal, generator)
    inputs = Gdn(
        q=draw(tokens, 2, 8),
        k=draw(tokens, 2, 8),
        v=draw(tokens, 4, 6),
        g=-draw(tokens, 4).abs() * 0.2,
        beta=draw(tokens, 4).sigmoid(),
        scale=8**-0.5,
        l2norm=True,
    )
    return msgspec.structs.replace(inputs, **changes)


def make_gated(tokens: int, generator: torch.Generator) -> Gdn:
    draw = partial(normal, generator)
    return make_gdn(tokens, generator, g=draw(tokens, 4), a_log=draw(4), dt_bias=draw(4))


def make_kda(tokens: int, generator: torch.Generator) -> Gdn:
    draw = partial(normal, generator)
    gate = draw(tokens, 4, 8)
    keys = draw(tokens, 4, 8), draw(tokens, 4, 8)
    return make_gdn(
        tokens, generator, q=keys[0], k=keys[1], g=gate, a_log=draw(4), dt_bias=draw(4, 8)
    )


def make_mamba1(tokens: int, generator: torch.Generator) -> Mamba1:
    draw = partial(normal, generator)
    return Mamba1(
        x=draw(tokens, 6), dt=draw(tokens, 6), b=draw(tokens, 4), c=draw(tokens, 4),
        a=-draw(6, 4).exp(), z=draw(tokens, 6), d=draw(6), dt_bias=draw(6),
    )  # fmt: skip


def make_mamba2(tokens: int, generator: torch.Generator) -> Mamba2:
    draw = partial(normal, generator)
    return Mamba2(
        x=draw(tokens, 4, 6), dt=draw(tokens, 4), b=draw(tokens, 2, 5), c=draw(tokens, 2, 5),
        a=-draw(4).exp(), z=draw(tokens, 4, 6), d=draw(4), dt_bias=draw(4), dt_limit=(0.05, 2.0),
    )  # fmt: skip


def make_conv(tokens: int, generator: torch.Generator, width: int = 4) -> ShortConv:
    draw = partial(normal, generator)
    return ShortConv(x=draw(tokens, 5), weight=draw(5, width), bias=draw(5), activation="silu")


def make_linear(tokens: int, generator: torch.Generator) -> Linear:
    draw = partial(normal, generator)
    return Linear(
        q=draw(tokens, 3, 8), k=draw(tokens, 3, 8), v=draw(tokens, 3, 6),
        slope=draw(3).abs(), scale=0.3,
    )  # fmt: skip


OPS = {
    "gdn": Op(make_gdn, gdn, (4, 6, 8)),
    "gdn with its gate": Op(make_gated, gdn, (4, 6, 8)),
    "kda": Op(make_kda, gdn, (4, 6, 8)),
    "mamba1": Op(make_mamba1, mamba1, (6, 4)),
    "mamba2": Op(make_mamba2, mamba2, (4, 6, 5)),
    "short_conv": Op(make_conv, short_conv, (3, 5)),
    "short_conv of width 2": Op(partial(make_conv, width=2), short_conv, (1, 5)),
    "short_conv, long state": Op(make_conv, short_conv, (6, 5)),
    "linear": Op(make_linear, linear, (3, 8, 6)),
}

CHUNKED = ("gdn", "gdn with its gate", "kda", "mamba2", "linear")


def packed(
    lengths: list[int], slots: list[list[int]], initial: list[bool], **extra: Any
) -> StateMetadata:
    """Metadata of sequences of these lengths, each with its row of slots."""
    return StateMetadata(
        query_start_loc=torch.tensor([0, *lengths]).cumsum(0).to(torch.int32),
        state_indices=torch.tensor(slots, dtype=torch.int32),
        has_initial_state=torch.tensor(initial),
        max_query_len=max(lengths, default=0),
        **extra,
    )


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def feed(op: Op, inputs: Any, pieces: list[int], first: Tensor | None = None, **how: Any):
    """Outputs and final state of one sequence fed in pieces, from a given state or from none."""
    pool = torch.full((1, *op.state), NAN, dtype=torch.float64)
    known = first is not None
    if known:
        pool[0] = first
    rows, begin = [], 0
    for count in pieces:
        meta = packed([count], [[0]], [known])
        rows.append(op.run(take(inputs, slice(begin, begin + count)), pool, meta, **how))
        begin += count
        known = known or count > 0
    return torch.cat(rows), pool[0]
