"""Stand-ins for FlashMLA, FlashAttention 3 and Intel's kernels: real signatures and limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.mla_sparse import valid_slots
from tests.adapters.latent_specified import Arguments, Found, dense, sparse
from tests.adapters.strict import strict


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
