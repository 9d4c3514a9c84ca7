"""A layer as a set of demands: one group of a model's layers plus the options of this run.

The operations, and the features that a layer may demand of a backend's kernel, are named here
once. A backend lists the features that it has; a feature that it has never heard of counts as no.
"""

from __future__ import annotations

import msgspec

from attnctl.arguments import shown
from attnctl.exits import InputError
from attnctl.model.spec import LayerGroup, ModelSpec

OPS = {
    "full": "paged",
    "sliding": "paged",
    "chunked": "paged",
    "blocksparse": "paged",
    "encoder_self": "paged",
    "cross": "paged",
    "mla": "mla",
    "mla_sparse": "mla_sparse",
    "gdn": "gdn",
    "kda": "gdn",
    "mamba1": "mamba1",
    "mamba2": "mamba2",
    "short_conv": "short_conv",
    "linear": "linear",
}

FEATURES = {
    "encoder": "bidirectional self-attention beside a decoder",
    "encoder_only": "bidirectional self-attention without a KV cache",
    "cross": "cross-attention over encoder states",
    "sliding_window": "a window to the left",
    "two_sided_window": "a window to both sides",
    "chunked": "attention inside fixed chunks",
    "blocksparse": "attention to blocks of keys, by a pattern or an indexer",
    "sinks": "learned attention sinks",
    "softcap": "soft-capped logits",
    "alibi": "ALiBi position biases",
    "prefix_lm": "bidirectional prefixes (image tokens)",
    "score_bias": "learned biases on the scores (T5, DeBERTa)",
    "kda_gate": "a decay gate per channel (KDA)",
}

KV_DTYPES = {
    "auto": None,
    "float16": 2.0,
    "bfloat16": 2.0,
    "float32": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "int8_per_token_head": 1.0,
    "fp8_per_token_head": 1.0,
    "int4_per_token_head": 0.5,
    "fp8_ds_mla": 1.0,
    "nvfp4": 0.5625,
}
"""KV-cache dtype -> bytes per element, block scales included (nvfp4: 4 bits and 1 byte per 16)."""


BOUNDS = {
    "tp": (1, 1 << 16),
    "block_size": (1, 1 << 24),
    "max_model_len": (1, 1 << 40),
    "speculative_tokens": (0, 1024),
    "cache_memory": (1, 1 << 50),
}
"""Count of Options -> its bounds: far beyond what is run, and near enough to count with."""
MAY_BE_LEFT = frozenset({"block_size", "max_model_len", "cache_memory"})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user fixed for this run; None and "auto" leave it to the model and the backend.

    backend: kind (or "*") -> the backend that the user demands for it. Raises InputError for a
    count out of BOUNDS and for words of other types. one_block_size: groups whose blocks would
    differ get one size, which becomes block_size. speculative_tokens: drafts that a step
    verifies. cache_memory: bytes.
    """

    dtype: str | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    one_block_size: bool = False
    tp: int = 1
    max_model_len: int | None = None
    speculative_tokens: int = 0
    cache_memory: int | None = None
    backend: tuple[tuple[str, str], ...] = ()
    allow_fallback: bool = False

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            count = getattr(self, name)
            if count is None and name in MAY_BE_LEFT:
                continue
            said = f"--{name.replace('_', '-')} {shown(count)}"
            if not isinstance(count, int) or isinstance(count, bool):
                raise InputError(f"{said}: must be a whole number")
            if count < least:
                raise InputError(f"{said}: must be {least} or more")
            if count > most:
                raise InputError(f"{said}: must be at most {most}")
        _check_words(self)

    def requested(self, kind: str) -> str | None:
        wanted = dict(self.backend)
        return wanted.get(kind, wanted.get("*"))


def _check_words(options: Options) -> None:
    if not isinstance(options.dtype, str | None):
        raise InputError(f"--dtype {shown(options.dtype)}: give a name, as bfloat16")
    if not isinstance(options.kv_cache_dtype, str) or options.kv_cache_dtype not in KV_DTYPES:
        said = f"--kv-cache-dtype {shown(options.kv_cache_dtype)}"
        raise InputError(f"{said}: give one of {', '.join(KV_DTYPES)}")
    pairs = options.backend
    if not isinstance(pairs, tuple) or not all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(word, str) for word in pair)
        for pair in pairs
    ):
        raise InputError(
            f'--backend {shown(pairs)}: give pairs of a kind and a name, as (("*", "TRITON_ATTN"),)'
        )


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One group of layers as the rules see it, with where each fact came from.

    heads and kv_heads are per tensor-parallel rank; kv_cache_dtype is never None, and
    auto_kv_cache_dtype is what it would be without --kv-cache-dtype: a checkpoint's own, or auto.
    """

    group: LayerGroup
    op: str | None
    dtype: str
    dtype_source: str
    kv_cache_dtype: str
    kv_cache_dtype_source: str
    auto_kv_cache_dtype: str = "auto"
    block_size: int | None
    heads: int | None
    kv_heads: int | None
    features: tuple[str, ...]
    tp: int = 1

    @property
    def head_size(self) -> int | None:
        return self.group.head_size

    @property
    def head_size_v(self) -> int | None:
        return self.group.head_size_v or self.group.head_size

    @property
    def quantized_kv(self) -> bool:
        return self.kv_cache_dtype not in ("auto", "float16", "bfloat16", "float32")

    def source(self, field: str) -> str:
        return self.group.sources.get(field, "config.json")


def layer_of(spec: ModelSpec, group: LayerGroup, options: Options) -> Layer:
    """The demands of one group under these options."""
    dtype, dtype_source = _dtype(spec, options)
    kv_dtype, kv_source = _kv_dtype(spec, group, options)
    return Layer(
        group=group,
        op=_op(group),
        dtype=dtype,
        dtype_source=dtype_source,
        kv_cache_dtype=kv_dtype,
        kv_cache_dtype_source=kv_source,
        auto_kv_cache_dtype=_auto_kv_dtype(spec, group),
        block_size=options.block_size,
        heads=_per_rank(group.num_heads, options.tp),
        kv_heads=_per_rank(group.num_kv_heads, options.tp),
        features=features_of(group),
        tp=options.tp,
    )


def features_of(group: LayerGroup) -> tuple[str, ...]:
    """The features beyond plain causal attention that a group demands, in the order of FEATURES."""
    two_sided = group.window is not None and group.window_right is not None
    wanted = {
        "encoder": group.attn_type == "encoder",
        "encoder_only": group.attn_type == "encoder_only",
        "cross": group.kind == "cross",
        "sliding_window": group.window is not None and not two_sided and group.kind != "chunked",
        "two_sided_window": two_sided,
        "chunked": group.kind == "chunked",
        "blocksparse": group.kind == "blocksparse",
        "sinks": group.sinks,
        "softcap": group.softcap is not None,
        "alibi": group.alibi,
        "prefix_lm": group.prefix_lm,
        "score_bias": bool(group.notes.get("score_bias")),
        "kda_gate": group.kind == "kda",
    }
    return tuple(name for name in FEATURES if wanted[name])


def _op(group: LayerGroup) -> str | None:
    op = OPS.get(group.kind)
    if op == "paged" and group.head_size_v not in (None, group.head_size):
        return "diffkv"
    return op


def _dtype(spec: ModelSpec, options: Options) -> tuple[str, str]:
    if options.dtype is not None and options.dtype != "auto":
        return options.dtype, "--dtype"
    if spec.dtype is not None:
        return spec.dtype, spec.dtype_source or "config.json"
    return "float32", "a guess: config.json names no dtype (--dtype says it)"


def _kv_dtype(spec: ModelSpec, group: LayerGroup, options: Options) -> tuple[str, str]:
    if options.kv_cache_dtype != "auto":
        return options.kv_cache_dtype, "--kv-cache-dtype"
    auto = _auto_kv_dtype(spec, group)
    return auto, "the model's dtype" if auto == "auto" else spec.kv_cache_dtype_source


def _auto_kv_dtype(spec: ModelSpec, group: LayerGroup) -> str:
    stated = spec.kv_cache_dtype_from_checkpoint
    return stated if stated and group.needs_kv_cache else "auto"


def _per_rank(heads: int | None, tp: int) -> int | None:
    # KV heads are repeated where there are fewer than ranks, so a rank has at least one; where they
    # do not divide (the rule "tensor_parallel" refuses it), the fullest rank counts
    return None if heads is None else max(1, -(-heads // tp))
