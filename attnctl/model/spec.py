"""What a config.json says about attention: groups of layers, each a set of demands.

Field names and values are those of the public forms: head sizes are per head, heads are counted
before any tensor-parallel split, state shapes are per sequence.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "attnctl.model/1"

Kind = Literal[
    "full",  # causal attention over the whole context
    "sliding",  # causal attention over a window
    "chunked",  # causal attention inside fixed chunks (Llama 4)
    "blocksparse",  # causal attention over a fixed block pattern (Phi-3-small)
    "mla",  # multi-head latent attention, dense
    "mla_sparse",  # latent attention over the tokens that an indexer picked
    "encoder_self",  # bidirectional, no KV cache
    "cross",  # decoder over encoder states
    "gdn",  # gated delta rule
    "kda",  # gated delta rule with a gate per channel (Kimi Linear)
    "mamba1",
    "mamba2",
    "short_conv",
    "linear",  # lightning attention: linear with a decay per head
    "recurrent_other",  # a fixed-size state that no backend here keeps (RWKV, RG-LRU, xLSTM)
    "none",  # a block that caches nothing (MLP only, pruned)
]

SSM_KINDS = frozenset({"gdn", "kda", "mamba1", "mamba2", "short_conv", "linear"})
CACHELESS_KINDS = frozenset({"encoder_self", "none"})


class Mla(msgspec.Struct, frozen=True, kw_only=True):
    """Widths of multi-head latent attention. Cached row: kv_lora_rank + qk_rope_head_dim."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    prefill_head_size: int
    prefill_head_size_v: int


class Indexer(msgspec.Struct, frozen=True, kw_only=True):
    """DeepSeek V3.2's lightning indexer. layers: those that run it (None: every one)."""

    heads: int
    head_dim: int
    topk: int
    layers: tuple[int, ...] | None = None


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fixed-size state per sequence, shapes before any tensor-parallel split.

    conv_state: [C, W - 1]; ssm_state: what the recurrence carries ([C, R], [H, Dv, D], ...).
    """

    type: str
    conv_state: tuple[int, ...] | None = None
    ssm_state: tuple[int, ...] | None = None
    conv_kernel: int | None = None
    num_heads: int | None = None
    head_dim: int | None = None
    state_size: int | None = None
    n_groups: int | None = None
    inner: int | None = None
    dt_rank: int | None = None
    num_k_heads: int | None = None
    num_v_heads: int | None = None
    head_k_dim: int | None = None
    head_v_dim: int | None = None
    token_shift: tuple[int, ...] | None = None
    conv_dtype: str | None = None
    ssm_dtype: str | None = None


class LayerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one model that make the same demands.

    layers: ids counted from zero inside `stack` (None for models of one stack).
    window: as the file declares it: tokens that a query may see to its left, itself included (the
    convention of transformers); the whole width where the window has two sides (window_right:
    tokens to the right, else None); the width of a chunk where attention is chunked (chunk too).
    head_size / head_size_v: K and V widths; MLA gives the cached row and the latent width, with
    one KV head. kv_shared_from: layers that write no KV of their own -> the layer whose cache
    they read. notes: other facts of the family that readers of the decision want to see.
    sources: field name -> key path in config.json (or "default of llama" where the file is silent).
    """

    kind: Kind
    layers: tuple[int, ...]
    stack: Literal["encoder", "decoder"] | None = None
    head_size: int | None = None
    head_size_v: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    window: int | None = None
    window_right: int | None = None
    chunk: int | None = None
    sinks: bool = False
    softcap: float | None = None
    alibi: bool = False
    prefix_lm: bool = False
    mla: Mla | None = None
    indexer: Indexer | None = None
    state: State | None = None
    kv_shared_from: dict[int, int] = {}
    notes: dict[str, Any] = {}
    sources: dict[str, str] = {}

    @property
    def is_ssm(self) -> bool:
        """True where the layer keeps a fixed-size state instead of a KV cache."""
        return self.kind in SSM_KINDS

    @property
    def needs_kv_cache(self) -> bool:
        return not (self.is_ssm or self.kind in CACHELESS_KINDS or self.kind == "recurrent_other")

    @property
    def causal(self) -> bool:
        return self.kind not in ("encoder_self", "cross")

    @property
    def attn_type(self) -> str:
        """The field's name for it: decoder, encoder, encoder_only or encoder_decoder."""
        if self.kind == "cross":
            return "encoder_decoder"
        if self.kind == "encoder_self":
            return "encoder" if self.stack == "encoder" else "encoder_only"
        return "decoder"


class Tower(msgspec.Struct, frozen=True, kw_only=True):
    """A vision or audio encoder, reported apart from the text model."""

    layers: int | None = None
    num_heads: int | None = None
    head_size: int | None = None
    kind: str = "encoder_self"
    by_name: str | None = None
    path: str = ""


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One model as selection sees it.

    dtype: None where the file does not say. kv_cache_dtype_from_checkpoint: None where the
    checkpoint does not quantise its KV cache. max_position: the longest context;
    max_encoder_position: the most states that cross-attention reads; None where not stated.
    used / ignored / unknown: key paths of the file that decided something, that are known to have
    no bearing, and that nobody here has heard of.
    """

    schema: str = SCHEMA
    model_type: str | None
    architecture: str | None = None
    path: str = ""
    text_config_path: str = ""
    groups: tuple[LayerGroup, ...]
    dtype: str | None = None
    dtype_source: str = ""
    kv_cache_dtype_from_checkpoint: str | None = None
    kv_cache_dtype_source: str = ""
    max_position: int | None = None
    max_encoder_position: int | None = None
    vision: Tower | None = None
    audio: Tower | None = None
    notes: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
