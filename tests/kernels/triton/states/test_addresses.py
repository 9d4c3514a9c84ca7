"""Slots so far into a pool that a 32-bit offset would wrap, in a file that is nearly all hole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from attnctl.kernels.triton.states import gdn, linear, mamba1, mamba2, short_conv
from attnctl.ops.state_cases import Value, case
from attnctl.ops.state_inputs import build, pool_shape
from attnctl.runtime import StateMetadata

# 2^31 elements lie just below slot 7767 of this stride, which is no power of two
STRIDE = 276480
FAR = 7768
CASES: dict[str, tuple[Any, dict[str, Value]]] = {
    "gdn": (gdn, {"k_heads": 1, "v_heads": 1, "head_k_dim": 16, "head_v_dim": 16}),
    "mamba1": (mamba1, {"channels": 32}),
    "mamba2": (mamba2, {"heads": 1, "head_dim": 16, "state_size": 16}),
    "short_conv": (short_conv, {"channels": 32}),
    "linear": (linear, {"heads": 1, "head_dim": 16}),
}


def batch_of(length: int, slot: int) -> StateMetadata:
    return StateMetadata(
        query_start_loc=torch.tensor([0, length]).int(),
        state_indices=torch.tensor([[slot]]).int(),
        has_initial_state=torch.tensor([True]),
        max_query_len=length,
    )


@pytest.mark.parametrize("length", [1, 70])
@pytest.mark.parametrize("op", CASES)
def test_states_beyond_2_31_elements_are_read_and_written(
    op: str, length: int, tmp_path: Path
) -> None:
    """The same outputs and state as in the only slot of a small pool."""
    kernel, widths = CASES[op]
    one = case(op, queries=str(length), initial="all", **widths)
    inputs, shape = build(one).inputs, pool_shape(one)
    size = torch.Size(shape).numel()
    file = tmp_path / "pool"
    whole = torch.from_file(str(file), shared=True, size=FAR * STRIDE + size, dtype=torch.float16)
    dense = torch.empty(0, *shape).stride()[1:]
    pool = whole.as_strided((FAR + 1, *shape), (STRIDE, *dense))
    near = torch.randn(1, *shape, generator=torch.Generator().manual_seed(7)).half()
    pool[FAR] = near[0]
    first = getattr(inputs, "v", getattr(inputs, "x", None))
    outs = [torch.full_like(first, torch.nan) for _ in range(2)]
    kernel.forward(inputs, pool, batch_of(length, FAR), outs[0])
    kernel.forward(inputs, near, batch_of(length, 0), outs[1])
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(pool[FAR], near[0])
    assert not bool(pool[FAR - 1].any())


@pytest.mark.parametrize("op", ["gdn", "mamba2", "linear"])
def test_heads_that_lie_beyond_2_31_elements_are_read(op: str, tmp_path: Path) -> None:
    """Inputs with heads first in memory, each a page of tokens away from the next."""
    kernel, widths = CASES[op]
    heads = {"gdn": {"v_heads": 2}, "mamba2": {"heads": 2}, "linear": {"heads": 2}}[op]
    one = case(op, queries="40", initial="fresh", **{**widths, **heads})
    inputs, shape = build(one).inputs, pool_shape(one)
    name = "x" if op == "mamba2" else "v"
    value = getattr(inputs, name)
    apart = 2**31 + 4096
    size = apart + value.shape[0] * value.shape[2]
    whole = torch.from_file(str(tmp_path / "x"), shared=True, size=size, dtype=value.dtype)
    far = whole.as_strided(value.shape, (value.shape[2], apart, 1)).copy_(value)
    outs = []
    for given in (inputs, msgspec.structs.replace(inputs, **{name: far})):
        outs.append(torch.full_like(value, torch.nan))
        batch = msgspec.structs.replace(batch_of(40, 0), has_initial_state=torch.tensor([False]))
        kernel.forward(given, torch.zeros(1, *shape), batch, outs[-1])
    assert torch.equal(*outs)
