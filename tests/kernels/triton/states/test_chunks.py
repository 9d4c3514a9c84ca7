"""Long rows of the state-space kernels, in chunks and segments, interpreted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.states import (
    decayed,
    gdn,
    gdn_chunks,
    linear,
    mamba1,
    mamba2,
    short_conv,
)
from attnctl.kernels.triton.states.launch import MEASURED, PORTABLE
from attnctl.ops.state_cases import Value, case
from attnctl.ops.state_inputs import build, pool_shape
from attnctl.ops.state_trial import SPECIFICATIONS, try_case
from attnctl.ops.states import take
from attnctl.runtime import StateMetadata, open_backend

SMALL: dict[str, dict[str, Value]] = {
    "gdn": {"k_heads": 1, "v_heads": 2, "head_k_dim": 24, "head_v_dim": 40},
    "kda": {"k_heads": 2, "v_heads": 2, "head_k_dim": 24, "head_v_dim": 40, "kda": True},
    "mamba2": {"heads": 2, "head_dim": 24, "state_size": 20, "z": True, "d": "channel"},
    "linear": {"heads": 2, "head_dim": 24, "head_v_dim": 40},
    "mamba1": {"channels": 40, "state_size": 12},
    "short_conv": {"channels": 40},
}
BACKENDS = {
    "gdn": "GDN_ATTN",
    "kda": "GDN_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "linear": "LINEAR_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
}
KERNELS = {
    "gdn": gdn,
    "kda": gdn,
    "mamba2": mamba2,
    "linear": linear,
    "mamba1": mamba1,
    "short_conv": short_conv,
}


def small(name: str, **changes: Value) -> Any:
    return case(name.replace("kda", "gdn"), **{**SMALL[name], **changes})


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "changes",
    [
        {"queries": "65+1+0+64", "padding": 2, "fused": True, "apart": True},
        {"queries": "127", "initial": "fresh", "dtype": "float16"},
        {"queries": "4+70+1+3", "initial": "all", "drafts": 3, "verified": "mixed",
         "accepted": "2+1+4", "padding": 1},
        {"queries": "1+66", "initial": "all", "drafts": 3, "accepted": 4, "verified": "last"},
    ],
)  # fmt: skip
def test_long_rows_are_as_specified(name: str, changes: dict[str, Value]) -> None:
    """Chunks that end anywhere, beside single tokens, empty rows, padding and verification."""
    found = try_case(open_backend(BACKENDS[name]), small(name, **changes))
    assert (found.verdict, found.detail) == ("pass", "")


def batch_of(lengths: list[int], known: bool) -> StateMetadata:
    return StateMetadata(
        query_start_loc=torch.tensor([0, *lengths]).cumsum(0).int(),
        state_indices=torch.arange(len(lengths))[:, None].int(),
        has_initial_state=torch.full((len(lengths),), known),
        max_query_len=max(lengths),
    )


def run(name: str, inputs: Any, pool: Tensor, batch: StateMetadata) -> Tensor:
    """Outputs in float32, so that only what lies between is rounded."""
    first = getattr(inputs, inputs.per_token[0])
    width = getattr(inputs, "v", first).shape[1:]
    out = torch.full((first.shape[0], *width), torch.nan)
    KERNELS[name].forward(inputs, pool, batch, out)
    return out


def close(found: Tensor, wanted: Tensor, ratio: float = 8e-3) -> bool:
    """Within bfloat16 of each other: what is kept between two launches is rounded to it."""
    return float((found - wanted).norm() / wanted.norm()) < ratio


@pytest.mark.parametrize("name", SMALL)
def test_a_row_in_two_pieces_is_the_whole_row(name: str) -> None:
    """Wherever it is cut: inside a chunk, at its end, and past it."""
    one = small(name, queries="130", initial="fresh")
    inputs = build(one).inputs
    shape = pool_shape(one)
    whole = torch.full((1, *shape), torch.nan)
    expected = run(name, inputs, whole, batch_of([130], known=False))
    for cut in (63, 64, 65):
        pool = torch.full((1, *shape), torch.nan)
        head, tail = take(inputs, slice(0, cut)), take(inputs, slice(cut, 130))
        first = run(name, head, pool, batch_of([cut], known=False))
        second = run(name, tail, pool, batch_of([130 - cut], known=True))
        assert close(torch.cat([first, second]), expected), cut
        assert close(pool, whole), cut


@pytest.mark.parametrize("name", SMALL)
def test_rows_of_a_batch_are_as_alone(name: str) -> None:
    """Three rows whose chunks begin anywhere in the packed tokens, each against itself."""
    lengths = [70, 3, 64]
    one = small(name, queries="+".join(map(str, lengths)), initial="fresh")
    inputs, shape = build(one).inputs, pool_shape(one)
    pool = torch.full((3, *shape), torch.nan)
    out = run(name, inputs, pool, batch_of(lengths, known=False))
    start = 0
    for row, length in enumerate(lengths):
        part = take(inputs, slice(start, start + length))
        alone = torch.full((1, *shape), torch.nan)
        assert close(out[start : start + length], run(name, part, alone, batch_of([length], False)))
        assert close(pool[row], alone[0])
        start += length


@pytest.mark.parametrize("strength", [0.0, 1.0, 30.0, 200.0])
def test_gates_per_channel_of_any_strength_neither_overflow_nor_lose_neighbours(
    strength: float,
) -> None:
    """A channel may forget everything in one token and nothing in the next."""
    one = small("kda", queries="130", initial="fresh")
    inputs = build(one).inputs
    gate = -strength * (inputs.g.abs() > 0.3).to(inputs.g.dtype)
    inputs = msgspec.structs.replace(inputs, g=gate)
    pool = torch.full((1, *pool_shape(one)), torch.nan)
    exact = pool.double()
    batch = batch_of([130], known=False)
    found = run("kda", inputs, pool, batch)
    assert close(found, SPECIFICATIONS["gdn"](inputs, exact, batch).float())
    assert close(pool, exact.float())


def test_equal_keys_do_not_lose_the_digits_of_the_inverse() -> None:
    """The hardest system: every key the same, written at full strength, nothing forgotten.

    Each update is then the difference of two values, so that roundings to bfloat16 add up as steps
    of a walk; a series of powers would be off by orders of magnitude.
    """
    one = small("gdn", queries="128", initial="fresh", l2norm=True)
    inputs = build(one).inputs
    inputs = msgspec.structs.replace(
        inputs,
        k=inputs.k[:1].expand_as(inputs.k).contiguous(),
        g=torch.zeros_like(inputs.g),
        beta=torch.ones_like(inputs.beta),
    )
    pool = torch.full((1, *pool_shape(one)), torch.nan)
    exact = pool.double()
    batch = batch_of([128], known=False)
    found = run("gdn", inputs, pool, batch)
    assert close(found, SPECIFICATIONS["gdn"](inputs, exact, batch).float(), 4e-2)
    assert close(pool, exact.float(), 4e-2)


WALKS = sorted(
    {(op, walk.chunk) for table in MEASURED.values() for op, pair in table.items() for walk in pair}
)


@pytest.mark.parametrize(("name", "chunk"), WALKS)
def test_chunks_of_every_measured_size_are_as_specified(name: str, chunk: int) -> None:
    """The interpreter's own table has one size; the tables of GPUs have others."""
    one = small(name, queries="70+1", initial="all")
    batch = build(one)
    metadata = batch_of([70, 1], known=True)
    metadata = msgspec.structs.replace(metadata, state_indices=batch.state_indices)
    walk = msgspec.structs.replace(PORTABLE[name], chunk=chunk)
    inputs, pool, exact = batch.inputs, batch.pool.clone(), batch.pool.double()
    first = getattr(inputs, "v", getattr(inputs, "x", None))
    out = torch.full(first.shape, torch.nan)
    if name in ("gdn", "kda"):
        gdn_chunks.run(inputs, pool, metadata, out, walk)
    elif name == "mamba2":
        decayed.run(
            inputs.c, inputs.b, inputs.x, inputs.a, pool, metadata, out,
            state_strides=(inputs.b.shape[2], 1), dt=inputs.dt, z=inputs.z, skip=inputs.d,
            bias=inputs.dt_bias, softplus_dt=True, walk=walk,
        )  # fmt: skip
    else:
        decayed.run(
            inputs.q, inputs.k, inputs.v, -inputs.slope, pool, metadata, out,
            state_strides=(1, inputs.v.shape[2]), scale=inputs.scale, walk=walk,
        )  # fmt: skip
    wanted = SPECIFICATIONS[name.replace("kda", "gdn")](inputs, exact, metadata)
    slots = batch.state_indices[:, 0].long()
    assert close(out, wanted.float())
    assert close(pool[slots].float(), exact[slots].float())
