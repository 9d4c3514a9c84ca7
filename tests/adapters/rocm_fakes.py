"""Stand-ins for AITER and vLLM's kernels on ROCm: the real signatures and limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor

from attnctl.ops.paged import Paged, attend, visible
from tests.adapters.fakes import Arguments, as_table, check_per_head, flash_mask, specified
from tests.adapters.strict import strict


def aiter() -> Any:
    """aiter's batch prefill: pages of one token in lists."""

    def compute(a: Arguments) -> Tensor:
        lengths = a["kv_indptr"].diff()
        a["keys"], a["values"] = a["k"][:, None], a["v"][:, None]
        a["table"], a["lengths"] = as_table(a["kv_indptr"], a["kv_page_indices"]), lengths
        assert int(lengths.max()) <= a["max_seqlen_k"]
        a["softcap"] = a["logits_soft_cap"]
        names = ("keys", "values", "table", "cu_seqlens_q", "lengths")
        return specified(a, names, flash_mask(a, a["softmax_scale"]))

    function = strict("amd-aiter", "ops/mha.py", "mha_batch_prefill_func", compute)
    return SimpleNamespace(mha_batch_prefill_func=function)


def aiter_unified() -> Any:
    """aiter.ops.triton.unified_attention: causal alone, writes into `out`."""

    def compute(a: Arguments) -> None:
        assert a["causal"], "Only causal attention is supported"
        assert a["q_descale"] is None, "Q scales not supported"
        check_per_head(a["sinks"])
        names = ("k", "v", "block_table", "cu_seqlens_q", "seqused_k")
        params = flash_mask(a, a["softmax_scale"], a["sinks"])
        found = specified(a, names, params)
        live = int(a["cu_seqlens_q"][-1])
        a["out"][:live] = found[:live]

    file = "triton/unified_attention.py"
    return SimpleNamespace(
        unified_attention=strict("amd-aiter", file, "unified_attention", compute)
    )


def vllm_rocm() -> Any:
    """vLLM's prefix-prefill kernel: K in five dimensions, V with tokens last, both by strides."""

    def compute(a: Arguments) -> None:
        assert (a["k"] is None) == (a["v"] is None)
        assert a["k"] is not None or a["alibi_slopes"] is None
        assert a["kv_cache_dtype"] == "auto"
        check_per_head(a["alibi_slopes"])
        keys = a["k_cache"].permute(0, 3, 1, 2, 4).flatten(3)
        values = a["v_cache"].permute(0, 3, 1, 2)
        params = Paged(
            scale=a["sm_scale"],
            causal=a["causal"],
            window=a["sliding_window"] or None,
            alibi_slopes=a["alibi_slopes"],
        )
        starts = a["b_start_loc"].tolist()
        for b, length in enumerate(a["b_seq_len"].tolist()):
            first, last = starts[b], starts[b + 1]
            if first < last:
                parts = _context(a, b, length, (first, last), keys, values)
                seen = visible(last - first, length, params)
                query = a["q"][first:last].float()
                a["o"][first:last] = attend(query, *parts, seen, params).to(a["o"].dtype)

    function = strict("vllm", "prefix_prefill.py", "context_attention_fwd", compute)
    return SimpleNamespace(context_attention_fwd=function)


def _context(
    a: Arguments, b: int, length: int, rows: tuple[int, int], *caches: Tensor
) -> list[Tensor]:
    """K and V of one sequence: what was there from the cache, the new from the arguments."""
    size = caches[0].shape[1]
    pages = a["b_loc"][b, : -(-length // size)].long()
    held = [cache[pages].flatten(0, 1)[:length].float() for cache in caches]
    if a["k"] is not None:
        before = length - (rows[1] - rows[0])
        for part, new in zip(held, (a["k"], a["v"]), strict=True):
            part[before:] = new[rows[0] : rows[1]].float()
    return held
