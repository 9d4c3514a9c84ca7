"""Stand-ins for kernel packages: the real signatures, and the numbers of the specification."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.paged import Paged, paged_attention
from tests.adapters.strict import strict

Arguments = dict[str, Any]


def loader(**modules: Any) -> Callable[[str], Any]:
    """import_module where only these are installed; __ stands for a dot."""
    there = {name.replace("__", "."): module for name, module in modules.items()}

    def load(name: str) -> Any:
        if name not in there:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return there[name]

    return load


def check_per_head(*given: Tensor | None) -> None:
    """The libraries' kernels read sinks and slopes as float32, one after the other."""
    for numbers in given:
        assert numbers is None or (numbers.dtype is torch.float32 and numbers.is_contiguous())


def flash_mask(a: Arguments, softmax_scale: float, sinks: Tensor | None = None) -> Paged:
    factors = {}
    if "k_descale" in a:
        batch, heads = a["cu_seqlens_q"].shape[0] - 1, a.get("k", a.get("k_cache")).shape[2]
        assert a["k_descale"].shape == a["v_descale"].shape == (batch, heads)
        factors = {f"{x}_scale": float(a[f"{x}_descale"][0, 0]) for x in "kv"}
    check_per_head(a.get("alibi_slopes"))
    left, right = (-1 if side is None else side for side in a.get("window_size", (-1, -1)))
    causal = a["causal"]
    assert not causal or right <= 0, "FlashAttention's causal is a right side of 0"
    return Paged(
        scale=softmax_scale,
        causal=causal,
        window=None if left < 0 else left + 1,
        window_right=None if causal or right < 0 else right,
        softcap=a.get("softcap") or None,
        sinks=sinks,
        alibi_slopes=a.get("alibi_slopes"),
        **factors,
    )


def specified(a: Arguments, names: tuple[str, ...], params: Paged) -> Tensor:
    """names: of K and V, block table, query starts, context lengths. Rows of no sequence: 7."""
    query = a["q"]
    key, value, table, starts, lengths = (a[name] for name in names)
    assert table.dtype == starts.dtype == lengths.dtype == torch.int32
    assert key.stride(-1) == value.stride(-1) == 1
    assert key.element_size() > 1 or query.dtype == key.dtype, "Q, K and V have one dtype"
    dtype = torch.bfloat16 if query.element_size() == 1 else query.dtype
    out = torch.full((*query.shape[:2], value.shape[3]), 7.0, dtype=dtype)
    ours = (table, starts, lengths, params)
    return paged_attention(query, key, value, *ours, out=out, dtype=torch.float32)


def fa2() -> Any:
    """flash_attn 2.8: pages of 256, lengths summed up, no sinks."""

    def compute(a: Arguments) -> Tensor:
        assert a["k"].shape[1] % 256 == 0, "Paged KV cache block size must be divisible by 256"
        a["used"] = a["cu_seqlens_k"].diff()
        names = ("k", "v", "block_table", "cu_seqlens_q", "used")
        return specified(a, names, flash_mask(a, a["softmax_scale"]))

    file = "flash_attn/flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_varlen_func=strict("flash-attn", file, "flash_attn_varlen_func", compute)
    )


def fa3() -> Any:
    """flash_attn_interface, as the FlashAttention 3 source has it."""

    def compute(a: Arguments) -> Tensor:
        names = ("k_cache", "v_cache", "page_table", "cu_seqlens_q", "cache_seqlens")
        return specified(a, names, flash_mask(a, a["softmax_scale"]))

    file = "hopper/flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_with_kvcache=strict("flash-attn", file, "flash_attn_with_kvcache", compute)
    )


def fa4() -> Any:
    """flash_attn.cute: sides of None, sinks, and the logarithms beside the output."""

    def compute(a: Arguments) -> tuple[Tensor, None]:
        names = ("k", "v", "page_table", "cu_seqlens_q", "seqused_k")
        check_per_head(a["learnable_sink"])
        params = flash_mask(a, a["softmax_scale"], a["learnable_sink"])
        assert all(side is None or side >= 0 for side in a["window_size"])
        return specified(a, names, params), None

    file = "flash_attn/cute/interface.py"
    return SimpleNamespace(
        flash_attn_varlen_func=strict("flash-attn-4", file, "flash_attn_varlen_func", compute)
    )


def vllm_flash(*versions: int) -> Any:
    """vllm.vllm_flash_attn with these versions compiled; writes into `out` and no further."""

    def compute(a: Arguments) -> Tensor:
        version = a["fa_version"]
        assert version in versions
        assert version == 2 or a["alibi_slopes"] is None, "Alibi is not supported in FA3 and FA4"
        assert version != 2 or a["s_aux"] is None, "FA2 does not support s_aux"
        names = ("k", "v", "block_table", "cu_seqlens_q", "seqused_k")
        sinks = a["s_aux"]
        if sinks is not None and version == 3:
            assert sinks.dtype == torch.bfloat16
            assert sinks.is_contiguous()
        else:
            check_per_head(sinks)
        found = specified(a, names, flash_mask(a, a["softmax_scale"], sinks))
        if a["out"] is None:
            return found
        live = int(a["cu_seqlens_q"][-1])
        a["out"][:live] = found[:live]
        return a["out"]

    file = "vllm_flash_attn/flash_attn_interface.py"
    return SimpleNamespace(
        flash_attn_varlen_func=strict("vllm", file, "flash_attn_varlen_func", compute),
        is_fa_version_supported=lambda version: version in versions,
    )


def flashinfer() -> Any:
    """flashinfer's two wrappers over paged caches. `planned` counts the plans."""
    counts = SimpleNamespace(planned=0, decode=0)

    class Wrapper:
        kind = ""
        plan_name = ""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.made = self._bind("__init__")(*args, **kwargs)
            assert self.made["kv_layout"] == "NHD"

        def plan(self, *args: Any, **kwargs: Any) -> None:
            counts.planned += 1
            self.planned = self._bind(self.plan_name)(*args, **kwargs)

        def run(self, *args: Any, **kwargs: Any) -> Tensor:
            counts.decode += self.kind == "decode"
            run = self._bind("run")(*args, **kwargs)
            if "sinks" in run:
                assert self.made["backend"] == "trtllm-gen"
                check_per_head(run["sinks"])
            return _flashinfer_run(self.planned, run)

        def _bind(self, method: str) -> Callable[..., Any]:
            name = f"Batch{self.kind.capitalize()}WithPagedKVCacheWrapper.{method}"
            return strict("flashinfer-python", f"flashinfer/{self.kind}.py", name, dict)

    class Prefill(Wrapper):
        kind, plan_name = "prefill", "plan"

    class Decode(Wrapper):
        kind, plan_name = "decode", "_plan_impl"

    return SimpleNamespace(
        BatchPrefillWithPagedKVCacheWrapper=Prefill,
        BatchDecodeWithPagedKVCacheWrapper=Decode,
        counts=counts,
    )


def _flashinfer_run(planned: Arguments, run: Arguments) -> Tensor:
    decode = "indptr" in planned
    prefix = "" if decode else "paged_kv_"
    starts, indices = planned[f"{prefix}indptr"], planned[f"{prefix}indices"]
    counts = starts.diff()
    lengths = (counts - 1) * planned["page_size"] + planned[f"{prefix}last_page_len"]
    rows = torch.arange(counts.shape[0] + 1).int() if decode else planned["qo_indptr"]
    query = run["q"]
    assert query.shape[0] == int(rows[-1])
    assert query.dtype == planned["q_data_type"]
    assert run["out"].shape[0] == query.shape[0]
    keys, values = run["paged_kv_cache"]
    assert keys.dtype == planned["kv_data_type"]
    assert keys.shape[1] == planned["page_size"]
    left = planned["window_left"]
    params = Paged(
        scale=planned["sm_scale"],
        causal=True if decode else planned["causal"],
        window=None if left < 0 else left + 1,
        softcap=planned["logits_soft_cap"],
        sinks=run.get("sinks"),
        k_scale=run.get("k_scale", 1.0),
        v_scale=run.get("v_scale", 1.0),
    )
    table = as_table(starts, indices)
    ours = (table, rows, lengths, params)
    return paged_attention(query, keys, values, *ours, out=run["out"], dtype=torch.float32)


def as_table(starts: Tensor, indices: Tensor) -> Tensor:
    """A block table of ragged lists."""
    pieces = [indices[a:b] for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    return torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)
