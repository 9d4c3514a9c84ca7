"""The field report about short contexts and padding rows of sparse latent attention."""

from __future__ import annotations

import pytest
import torch

from attnctl.latent_runtime import packed_batch
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.runtime import Metadata, open_backend
from tests.shared_cases.reports import report

PARAMS = Latent(scale=0.15, kv_lora_rank=64)


def rows(count: int, seed: int) -> torch.Tensor:
    return torch.randn(count, 80, generator=torch.Generator().manual_seed(seed))


def decode(context: int) -> tuple[Metadata, torch.Tensor, torch.Tensor]:
    """The batch, a cache with one page of NaN beyond the context, and a query of two heads."""
    cache = torch.full((-(-context // 64) + 1, 64, 80), torch.nan)
    cache.flatten(0, 1)[:context] = rows(context, context)
    metadata = packed_batch(
        torch.tensor([0, 1]),
        torch.tensor([context]),
        torch.arange(cache.shape[0])[None],
        torch.zeros(0),
        max_query_len=1,
        max_seq_len=max(context, 1),
    )
    return metadata, cache, rows(2, 7)[None]


@pytest.mark.parametrize("holes", [False, True])
def test_every_context_length_equals_dense_attention_over_the_valid_indices(holes: bool) -> None:
    """Valid ones first and then -1, and -1 in the middle; whole contexts equal dense attention."""
    backend, case = open_backend("CPU_MLA_SPARSE"), report("C17")["input"]
    topk = case["topk"]
    for context in case["context_lens"]:
        metadata, cache, query = decode(context)
        order = torch.randperm(context, generator=torch.Generator().manual_seed(1))[:topk]
        slots = torch.full((1, topk), -1, dtype=torch.int32)
        if holes:
            order = order[: topk // 2]
            slots[0, 1 : 2 * order.numel() : 2] = order.int()
        else:
            slots[0, : order.numel()] = order.int()
        lse = torch.empty(1, 2)
        out = backend.forward(query, cache, metadata, slots, PARAMS, lse=lse)
        held = cache.flatten(0, 1)[order.sort().values]
        table, lengths = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([order.numel()])
        starts = torch.tensor([0, 1])
        if order.numel():
            exact = latent_attention(query, held[None], table, starts, lengths, PARAMS)
            torch.testing.assert_close(out.double(), exact[0], rtol=0, atol=1e-5)
            torch.testing.assert_close(lse.double(), exact[1], rtol=0, atol=1e-5)
        else:
            assert torch.equal(out, torch.zeros_like(out))
            assert (lse == -torch.inf).all()


def test_an_index_out_of_range_is_as_minus_one_and_a_row_of_them_is_zero() -> None:
    """Neither read nor counted."""
    backend = open_backend("CPU_MLA_SPARSE")
    metadata, cache, query = decode(5)
    total = cache.shape[0] * cache.shape[1]
    stray = torch.tensor([[0, total, 4, 2**31 - 1, -1]], dtype=torch.int32)
    out = backend.forward(query, cache, metadata, stray, PARAMS)
    clean = torch.where(stray < total, stray, -1)
    exact, _ = sparse_latent_attention(query, cache, clean, PARAMS)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5)
    none = backend.forward(query, cache, metadata, torch.full_like(stray, total), PARAMS)
    assert torch.equal(none, torch.zeros_like(none))
