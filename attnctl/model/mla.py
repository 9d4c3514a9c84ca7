"""Multi-head latent attention: the cached latent, and the indexer of its sparse form."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.attention import derived_head_size, heads_of
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.spec import Indexer, LayerGroup, Mla

_TOPK = ("index_topk", "indexer_topk")
# what DeepSeek V3.2 has; for files that give the number of picked tokens and nothing else
_INDEX_HEADS, _INDEX_WIDTH = 64, 128


def is_mla(text: Keys) -> bool:
    """True where the file describes a latent cache; keys of its schema alone do not make one."""
    if text.is_false("use_mla"):
        return False
    return text.count_or_default("kv_lora_rank") is not None


def mla_of(text: Keys) -> LayerGroup:
    """A latent-attention layer: head_size is the cached row [kv_lora_rank + qk_rope_head_dim]."""
    heads = heads_of(text)
    rank = _need(text, "kv_lora_rank")
    rope = _width(text, "qk_rope_head_dim")
    nope = _need(text, "qk_nope_head_dim")
    value = text.count_or_default("v_head_dim") or derived_head_size(text, heads)
    index = indexer_of(text)
    notes: dict[str, Any] = {}
    stated = text.count("num_key_value_heads")
    if stated is not None:
        notes["num_kv_heads_in_config"] = stated.value
    if text.is_true("mla_use_nope"):
        notes["nope_positions"] = True
    return LayerGroup(
        kind="mla" if index is None else "mla_sparse",
        layers=(),
        head_size=rank.value + rope.value,
        head_size_v=rank.value,
        num_heads=heads.value,
        num_kv_heads=1,
        mla=Mla(
            kv_lora_rank=rank.value,
            qk_rope_head_dim=rope.value,
            qk_nope_head_dim=nope.value,
            v_head_dim=value.value,
            prefill_head_size=nope.value + rope.value,
            prefill_head_size_v=value.value,
        ),
        indexer=index.value if index else None,
        notes=notes,
        sources={
            **sources(num_heads=heads, head_size_v=rank, indexer=index),
            "head_size": f"{rank.source} + {rope.source}",
            "num_kv_heads": "one latent per token",
        },
    )


def indexer_of(text: Keys) -> Value[Indexer] | None:
    """The lightning indexer, or None where attention is dense."""
    topk = text.count_or_default(*_TOPK)
    if topk is None:
        return None
    heads = text.count_or_default("index_n_heads")
    width = text.count_or_default("index_head_dim")
    if heads is None or width is None:
        text.note("index_n_heads or index_head_dim is not stated: 64 heads of 128 are assumed")
    found = Indexer(
        heads=heads.value if heads else _INDEX_HEADS,
        head_dim=width.value if width else _INDEX_WIDTH,
        topk=topk.value,
    )
    return Value(found, topk.source)


def dense(group: LayerGroup) -> LayerGroup:
    """The same layer without its indexer."""
    return msgspec.structs.replace(group, kind="mla", indexer=None)


def _need(text: Keys, name: str) -> Value[int]:
    given = text.count_or_default(name)
    if given is None:
        raise text.missing("width of latent attention", name)
    return given


def _width(text: Keys, name: str) -> Value[int]:
    """A width that may be zero (a model without rope in its latent)."""
    given = text.whole(name)
    if given is not None:
        return given
    assumed = text.default(name)
    if assumed is None or not isinstance(assumed.value, int):
        raise text.missing("width of latent attention", name)
    return assumed
