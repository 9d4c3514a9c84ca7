"""Stand-ins for FlashInfer's and AITER's latent attention: real signatures and limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.mla_sparse import valid_slots
from tests.adapters.fakes import as_table
from tests.adapters.latent_specified import Arguments, Found, dense, sparse
from tests.adapters.strict import strict


def flashinfer() -> Any:
    """flashinfer.mla on data-centre Blackwell. `calls` names those made."""
    calls: list[str] = []

    def decode(a: Arguments) -> Any:
        query, cache, table, lengths = (
            a[name] for name in ("query", "kv_cache", "block_tables", "seq_lens")
        )
        calls.append("sparse" if a.get("sparse_mla_top_k") else "dense")
        tokens, queries, heads, width = query.shape
        rank, rope = a["kv_lora_rank"], a["qk_rope_head_dim"]
        assert (queries, width) == (1, rank + rope)
        assert query.dtype is cache.dtype in (torch.bfloat16, torch.float8_e4m3fn)
        assert not 64 < heads < 128
        assert cache.dim() == 4
        assert cache.shape[1] == 1
        assert cache.shape[2] in (32, 64)
        assert table.dtype == lengths.dtype == torch.int32
        assert a["workspace_buffer"].dtype is torch.int8
        assert a["workspace_buffer"].numel() >= 128 << 20
        assert a["bmm2_scale"] == 1.0
        stored = cache[:, 0].float() if cache.element_size() == 1 else cache[:, 0]
        if calls[-1] == "sparse":
            out, lse = _flashinfer_sparse(a, query[:, 0], stored, table, lengths)
        else:
            assert (rank, rope) in ((512, 64), (256, 64))
            assert table.shape == (tokens, table.shape[1])
            assert table.shape[1] * cache.shape[2] % 128 == 0
            assert int(lengths.max()) <= a["max_seq_len"]
            starts = torch.arange(tokens + 1).int()
            out, lse = dense(query[:, 0], stored, table, starts, lengths, a["bmm1_scale"])
        out = out[:, None].to(torch.bfloat16)
        if not a.get("return_lse"):
            return out
        base = 1.0 if a["return_lse_base"] == "basee" else torch.tensor(2.0).log()
        return out, lse / base

    name = "trtllm_batch_decode_with_kv_cache_mla"
    function = strict("flashinfer-python", "mla/_core.py", name, decode)
    return SimpleNamespace(trtllm_batch_decode_with_kv_cache_mla=function, calls=calls)


def _flashinfer_sparse(
    a: Arguments, query: Tensor, cache: Tensor, table: Tensor, lengths: Tensor
) -> Found:
    places = a["sparse_mla_top_k"]
    assert table.shape == (query.shape[0], 1, places)
    assert places % 128 == 0
    assert a["max_seq_len"] == places
    rank = a["kv_lora_rank"]
    assert (rank, a["qk_rope_head_dim"]) in ((512, 64), (512, 0))
    assert ("sparse_mla_top_k_lens" in a) == (a["qk_rope_head_dim"] == 0)
    if "sparse_mla_top_k_lens" in a:
        assert torch.equal(a["sparse_mla_top_k_lens"], lengths)
    assert int(lengths.min()) >= 1
    named = torch.full_like(table[:, 0], -1)
    for t, length in enumerate(lengths.tolist()):
        named[t, :length] = table[t, 0, :length]
        assert bool(valid_slots(named[t, :length], cache).all())
    return sparse(query, cache, named, a["bmm1_scale"], rank)


def aiter(package: str) -> Any:
    """aiter.mla of the released wheel ("amd-aiter"), or of the repository since ("aiter").

    The release leaves the log-sum-exp that it returns unwritten. `calls` counts.
    """
    calls: list[str] = []
    returns_lse = package == "aiter"

    def decode(a: Arguments) -> tuple[None, Tensor | None]:
        calls.append("decode")
        query, rows, out, indptr = a["q"], a["kv_buffer"], a["o"], a["kv_indptr"]
        tokens, heads, width = query.shape
        assert query.dtype is rows.dtype is torch.bfloat16
        assert query.is_contiguous()
        assert rows.shape[1:] == (1, 1, width)
        assert width == 576
        assert heads in ((16, 32, 64, 128) if returns_lse else (16, 128))
        assert out.shape == (tokens, heads, 512)
        assert a["max_seqlen_q"] == 1
        assert a["qo_indptr"].tolist() == list(range(tokens + 1))
        assert a["kv_last_page_lens"].tolist() == [1] * tokens
        assert indptr.dtype == a["kv_indices"].dtype == torch.int32
        table = as_table(indptr, a["kv_indices"])
        starts = torch.arange(tokens + 1).int()
        places = (table, starts, indptr.diff().int(), a["sm_scale"])
        found, lse = dense(query, rows[:, :, 0], *places)
        out.copy_(found)
        if not returns_lse:
            assert "return_lse" not in a
            return None, torch.full_like(lse, torch.nan)
        return None, lse if a.get("return_lse") else None

    return SimpleNamespace(
        mla_decode_fwd=strict(package, "aiter/mla.py", "mla_decode_fwd", decode), calls=calls
    )
