"""Calls on tensors of the meta device, which have shapes and no numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.case import Case
from attnctl.ops.paged import Paged
from attnctl.ops.state_cases import case
from attnctl.ops.state_inputs import build, moved
from attnctl.runtime import open_backend

STATES = {
    "GDN_ATTN": "gdn",
    "LINEAR_ATTN": "linear",
    "MAMBA1_ATTN": "mamba1",
    "MAMBA2_ATTN": "mamba2",
    "SHORT_CONV_ATTN": "short_conv",
}
PAGED = ("FLEX_ATTENTION", "ROCM_AITER_UNIFIED_ATTN", "TRITON_ATTN", "TRITON_ATTN_DIFFKV")


def nothing(*sizes: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


@pytest.mark.parametrize("name", PAGED)
def test_attention_over_tensors_without_memory_is_one_sentence(name: str) -> None:
    """It says where the tensors lie, not what some library met on its way."""
    runtime = open_backend(name)
    cache = nothing(*runtime.cache_shape(4, 64, 1, 64), dtype=torch.bfloat16)
    metadata = runtime.build_metadata(
        nothing(2),
        nothing(1),
        nothing(1, 1),
        nothing(1, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=1,
    )
    query = nothing(1, 2, 64, dtype=torch.bfloat16)
    with pytest.raises(InputError, match=f"^{name}: its tensors lie on meta, where they hold "):
        runtime.forward(query, cache, metadata, Paged(scale=0.1))


@pytest.mark.parametrize("name", STATES)
def test_states_without_memory_are_one_sentence(name: str) -> None:
    """As of attention; nothing is being compiled here."""
    given: Case = case(STATES[name])
    batch, runtime = build(given), open_backend(name)
    tokens = batch.lengths[0]
    metadata = runtime.build_metadata(nothing(2), nothing(1), nothing(1), max_query_len=tokens)
    inputs, pool = moved(batch.inputs, "meta"), batch.pool.to("meta")
    with pytest.raises(InputError, match=f"^{name}: its tensors lie on meta, where they hold "):
        runtime.forward(inputs, pool, metadata)
