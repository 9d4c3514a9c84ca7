"""Stand-ins for libraries of latent attention: the real signatures, limits and numbers.

Where a library leaves a row undefined the stand-in puts 7, which is seen where nothing may be
written, or NaN where something must be, and +inf where a library says +inf.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnctl.backends.cpu_mla import kernel as cpu_mla
from attnctl.backends.cpu_mla_sparse import kernel as cpu_mla_sparse
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_sparse import sparse_latent_attention, valid_slots
from tests.adapters.fakes import as_table
from tests.adapters.strict import strict

Arguments = dict[str, Any]
Found = tuple[Tensor, Tensor]

BUNDLED = {
    "attnctl__backends__triton_mla__kernel": cpu_mla,
    "attnctl__backends__triton_mla_sparse__kernel": cpu_mla_sparse,
}
"""On the processor its own backends stand for the bundled Triton ones."""


def dense(
    query: Tensor, cache: Tensor, table: Tensor, starts: Tensor, lengths: Tensor, scale: float
) -> Found:
    """out in the dtype of queries, bfloat16 for FP8 ones, and lse; 7 and +inf where nothing is."""
    assert table.dtype == starts.dtype == lengths.dtype == torch.int32
    rank = {576: 512, 320: 256}[query.shape[2]]
    params = Latent(scale=scale, kv_lora_rank=rank)
    out, lse = latent_attention(
        query.float(), cache, table, starts, lengths, params, dtype=torch.float32
    )
    return undefined(out, lse, query.dtype, 7.0)


def sparse(query: Tensor, cache: Tensor, slots: Tensor, scale: float, rank: int) -> Found:
    assert slots.dtype == torch.int32
    params = Latent(scale=scale, kv_lora_rank=rank)
    out, lse = sparse_latent_attention(query.float(), cache, slots, params, dtype=torch.float32)
    return undefined(out, lse, query.dtype, torch.nan)


def undefined(out: Tensor, lse: Tensor, dtype: torch.dtype, filling: float) -> Found:
    empty = lse == -torch.inf
    lse = torch.where(empty, torch.inf, lse)
    narrow = torch.bfloat16 if dtype.itemsize == 1 else dtype
    return torch.where(empty[..., None], filling, out).to(narrow), lse


class Schedule:
    """FlashMLASchedMeta: bound to the shapes and lengths of its first call."""

    def __init__(self) -> None:
        self.held: tuple[Any, ...] | None = None

    def bind(self, *shape: Any, lengths: Tensor | None = None) -> None:
        now = (*shape, None if lengths is None else lengths.tolist())
        assert self.held in (None, now), "inconsistent with sched_meta"
        self.held = now


def flashmla(package: str = "vllm") -> Any:
    """FlashMLA's interface in its own package ("flash-mla") or vLLM's. `calls` names those made."""
    calls: list[str] = []
    file = "flash_mla_interface.py"

    def cached(a: Arguments) -> Found:
        schedule, query, cache = a["tile_scheduler_metadata"], a["q"], a["k_cache"]
        assert isinstance(schedule, Schedule)
        assert a["head_dim_v"] == 512
        assert query.dim() == 4
        assert cache.dim() == 4
        assert cache.shape[2] == 1
        batch, queries, heads, width = query.shape
        indices = a.get("indices")
        if indices is None:
            calls.append("dense")
            assert query.dtype == cache.dtype in (torch.bfloat16, torch.float16)
            assert (width, cache.shape[1]) == (576, 64)
            schedule.bind(query.shape, cache.shape[1], lengths=a["cache_seqlens"])
            assert a["causal"]
            starts = torch.arange(batch + 1).int() * queries
            rows = query.flatten(0, 1)
            places = (a["block_table"], starts, a["cache_seqlens"], a["softmax_scale"])
            out, lse = dense(rows, cache[:, :, 0], *places)
        else:
            calls.append("packed")
            assert query.dtype is torch.bfloat16
            assert cache.dtype is torch.uint8
            assert (width, cache.shape[3]) == (576, 656)
            assert heads in (64, 128)
            assert a["is_fp8_kvcache"]
            assert not a.get("causal")
            assert indices.shape[:2] == (batch, queries)
            assert indices.shape[2] % 64 == 0
            _only_minus_one(indices, cache)
            schedule.bind(query.shape, cache.shape[1], indices.shape)
            rows, slots = query.flatten(0, 1), indices.flatten(0, 1)
            out, lse = sparse(rows, cache[:, :, 0], slots, a["softmax_scale"], 512)
        return out.unflatten(0, (batch, queries)), lse.view(batch, queries, heads).mT

    def plain(a: Arguments) -> tuple[Tensor, None, Tensor]:
        calls.append("plain")
        query, rows, indices = a["q"], a["kv"], a["indices"]
        assert query.dtype is rows.dtype is torch.bfloat16
        assert query.is_contiguous()
        assert indices.is_contiguous()
        assert rows.shape[1] == 1
        assert rows.shape[2] in (512, 576)
        assert query.shape[1] in (64, 128)
        assert indices.shape[1] == 1
        assert indices.shape[2] % 128 == 0
        _only_minus_one(indices, rows)
        out, lse = sparse(query, rows, indices[:, 0], a["sm_scale"], a["d_v"])
        return out, None, lse

    return SimpleNamespace(
        calls=calls,
        get_mla_metadata=strict(package, file, "get_mla_metadata", lambda a: (Schedule(), None)),
        flash_mla_with_kvcache=strict(package, file, "flash_mla_with_kvcache", cached),
        flash_mla_sparse_fwd=strict(package, file, "flash_mla_sparse_fwd", plain),
    )


def _only_minus_one(indices: Tensor, cache: Tensor) -> None:
    """What is out of range is a read out of range, but for -1."""
    assert bool((valid_slots(indices, cache) | (indices == -1)).all())


def flashmla_fp8() -> Any:
    """vLLM's extension beside FlashMLA: FP8 keys and queries, its schedule two tensors."""

    def schedule(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["num_heads_k"] == 1
        return a["cache_seqlens"].clone(), torch.tensor(a["num_q_tokens_per_head_k"])

    def attend(a: Arguments) -> Found:
        query, cache = a["q"], a["k_cache"]
        assert query.dtype is cache.dtype is torch.float8_e4m3fn
        assert cache.shape[1:] == (64, 1, 576)
        assert query.shape[1] == 1
        assert torch.equal(a["tile_scheduler_metadata"], a["cache_seqlens"])
        assert int(a["num_splits"]) == query.shape[2]
        assert a["causal"]
        for name in ("descale_q", "descale_k"):
            assert a[name].shape == (1,)
            assert float(a[name]) == 1.0
        starts = torch.arange(query.shape[0] + 1).int()
        places = (a["block_table"], starts, a["cache_seqlens"], a["softmax_scale"])
        out, lse = dense(query[:, 0], cache[:, :, 0].float(), *places)
        return out[:, None], lse[:, :, None]

    file = "ops/flashmla.py"
    return SimpleNamespace(
        get_mla_metadata_dense_fp8=strict("vllm", file, "get_mla_metadata_dense_fp8", schedule),
        flash_mla_with_kvcache_fp8=strict("vllm", file, "flash_mla_with_kvcache_fp8", attend),
    )


def vllm_flash3() -> Any:
    """vllm.vllm_flash_attn on Hopper: the rope part as Q and K, the latent part as q_v and V."""

    def compute(a: Arguments) -> Any:
        assert a["fa_version"] == 3
        names = ("q", "q_v", "k", "v", "block_table", "cu_seqlens_q", "seqused_k")
        return _flash3(a, *(a[name] for name in names))

    file = "vllm_flash_attn/flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_varlen_func=strict("vllm", file, "flash_attn_varlen_func", compute),
        is_fa_version_supported=lambda version: version == 3,
    )


def own_flash3() -> Any:
    """flash_attn_interface, as the FlashAttention 3 source has it."""

    def compute(a: Arguments) -> Any:
        names = ("q", "qv", "k_cache", "v_cache", "page_table", "cu_seqlens_q", "cache_seqlens")
        return _flash3(a, *(a[name] for name in names))

    file = "hopper/flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_with_kvcache=strict("flash-attn", file, "flash_attn_with_kvcache", compute)
    )


def _flash3(
    a: Arguments,
    rope: Tensor,
    latent: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    starts: Tensor,
    lengths: Tensor,
) -> Any:
    assert rope.dtype == latent.dtype == keys.dtype == values.dtype
    assert rope.element_size() == 2
    assert rope.shape[2] == keys.shape[3] == 64
    assert latent.shape[2] == values.shape[3]
    assert values.shape[3] in (256, 512)
    assert keys.shape[2] == values.shape[2] == 1
    assert all(x.stride(-1) == 1 for x in (rope, latent, keys, values))
    tile = {512: 64, 256: 96}[values.shape[3]]
    if keys.shape[1] % tile == 0 and a["max_seqlen_q"] * rope.shape[1] > 64:
        # whole pages are loaded, and what is masked is multiplied with 0
        values = values + 0 * values.sum()
    assert a["causal"]
    query = torch.cat([latent, rope], dim=2)
    cache = torch.cat([values, keys], dim=3)[:, :, 0]
    out, lse = dense(query, cache, table, starts, lengths, a["softmax_scale"])
    return (out, lse.t()) if a["return_softmax_lse"] else out


def xpu_flash() -> Any:
    """vllm_xpu_kernels.flash_attn_interface: the row as the key, its latent part as the value."""

    def compute(a: Arguments) -> Any:
        query, keys, values = a["q"], a["k"], a["v"]
        assert (a["fa_version"], a["max_seqlen_q"], a["causal"]) == (2, 1, False)
        assert query.shape[2] == keys.shape[3] == 576
        assert keys.shape[1] % 64 == 0
        assert values.shape[3] == 512
        assert values.data_ptr() == keys.data_ptr()
        assert int(a["seqused_k"].max()) <= a["max_seqlen_k"]
        places = (a["block_table"], a["cu_seqlens_q"], a["seqused_k"], a["softmax_scale"])
        out, lse = dense(query, keys[:, :, 0], *places)
        return (out, lse.t()) if a["return_softmax_lse"] else out

    package, file = "vllm-xpu-kernels", "flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_varlen_func=strict(package, file, "flash_attn_varlen_func", compute)
    )


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


def xpu_sparse() -> Any:
    """vllm_xpu_kernels.flash_mla_interface, which is in the repository and no release yet."""
    calls: list[str] = []

    def attend(a: Arguments) -> Any:
        calls.append("plain")
        query, rows, indices = a["q"], a["kv"], a["indices"]
        assert query.dtype is rows.dtype is torch.bfloat16
        assert rows.shape[1] == indices.shape[1] == 1
        assert query.shape[2] == rows.shape[2]
        assert query.shape[2] in (512, 576)
        assert a["d_v"] == 512
        out, lse = sparse(query, rows, indices[:, 0], a["sm_scale"], 512)
        return (out, lse, lse) if a["return_softmax_lse"] else out

    package, file = "vllm-xpu-source", "flash_mla_interface.py"
    return SimpleNamespace(
        flash_mla_sparse_fwd=strict(package, file, "flash_mla_sparse_fwd", attend), calls=calls
    )
