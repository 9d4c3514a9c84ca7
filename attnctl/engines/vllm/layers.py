"""One group of a model's layers as vLLM's selector would see it."""

from __future__ import annotations

from typing import Any, Protocol

from attnctl.engines.vllm.facts import Facts, Layer, ModelFacts
from attnctl.exits import InputError
from attnctl.model.spec import LayerGroup, ModelSpec


class RunOptions(Protocol):
    """What is read of a run's options: attnctl.layer.Options has it."""

    @property
    def dtype(self) -> str | None: ...
    @property
    def kv_cache_dtype(self) -> str: ...
    @property
    def block_size(self) -> int | None: ...
    @property
    def tp(self) -> int: ...
    def requested(self, kind: str) -> str | None: ...


def run_dtype(facts: Facts, options: RunOptions, spec: ModelSpec | None) -> tuple[str, str]:
    """Return the dtype that vLLM runs the model in, and a note where it is not the file's.

    Without --dtype vLLM runs float32 checkpoints in bfloat16, or in float16 where the device has
    no bfloat16 (compute capability below 8.0), which also replaces a bfloat16 checkpoint's dtype.
    """
    if options.dtype not in (None, "auto"):
        return str(options.dtype), ""
    old = facts.platform == "cuda" and (facts.capability or (0, 0)) < (8, 0)
    preferred = "float16" if old else "bfloat16"
    stated = spec.dtype if spec is not None else None
    if stated is None:
        return preferred, f"no dtype is stated: vLLM takes {preferred} (--dtype changes it)"
    if stated == "float32" or (old and stated == "bfloat16"):
        return preferred, f"vLLM runs {stated} checkpoints in {preferred} here (--dtype changes it)"
    return stated, ""


def layer_config(
    facts: Facts,
    group: LayerGroup,
    options: RunOptions,
    spec: ModelSpec | None = None,
    batch_invariant: bool = False,
) -> Layer:
    """Return the selector configuration of one attention group, per tensor-parallel rank."""
    if group.head_size is None:
        raise InputError(
            f"layers of kind {group.kind}: head_size is not known, so vLLM's pick is not"
        )
    is_mla = group.kind in ("mla", "mla_sparse")
    heads = _per_rank(group.num_heads, options.tp)
    return Layer(
        head_size=group.head_size,
        head_size_v=None if is_mla or group.head_size_v == group.head_size else group.head_size_v,
        dtype=run_dtype(facts, options, spec)[0],
        kv_cache_dtype=kv_dtype(group, options, spec),
        block_size=options.block_size,
        use_mla=is_mla,
        use_sparse=group.kind == "mla_sparse",
        num_heads=heads if is_mla else None,
        has_sink=group.sinks and not is_mla,
        has_sliding_window=group.window is not None and not is_mla,
        use_mm_prefix=group.prefix_lm,
        attn_type=group.attn_type,
        batch_invariant=batch_invariant,
        backend=options.requested(group.kind),
        want_prefill=is_mla,
        model=ModelFacts(
            num_heads=heads,
            num_kv_heads=_per_rank(group.num_kv_heads, options.tp),
            attn_type="encoder_decoder" if has_two_stacks(group, spec) else None,
            softcap=group.softcap is not None,
            hf=_widths(group),
        ),
    )


def kv_dtype(group: LayerGroup, options: RunOptions, spec: ModelSpec | None) -> str:
    """Return the cache dtype: the option's, else the checkpoint's own, else auto."""
    if options.kv_cache_dtype != "auto":
        return options.kv_cache_dtype
    if spec is not None and spec.kv_cache_dtype_from_checkpoint and group.needs_kv_cache:
        return spec.kv_cache_dtype_from_checkpoint
    return "auto"


def has_two_stacks(group: LayerGroup, spec: ModelSpec | None) -> bool:
    """Return whether the model is an encoder-decoder one, which ROCm's list looks at."""
    if group.kind == "cross" or group.notes.get("has_decoder"):
        return True
    return spec is not None and any(other.kind == "cross" for other in spec.groups)


def _per_rank(count: int | None, tp: int) -> int | None:
    return None if count is None else max(1, count // tp)


def _widths(group: LayerGroup) -> dict[str, Any]:
    if group.mla is None:
        return {}
    widths: dict[str, Any] = {
        "kv_lora_rank": group.mla.kv_lora_rank,
        "qk_rope_head_dim": group.mla.qk_rope_head_dim,
        "qk_nope_head_dim": group.mla.qk_nope_head_dim,
        "v_head_dim": group.mla.v_head_dim,
    }
    if group.indexer is not None:
        widths["index_topk"] = group.indexer.topk
    return widths
