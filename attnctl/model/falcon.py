"""Falcon and GPT-BigCode: flags that decide the number of KV heads, whatever the counts say."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import (
    KV_HEADS,
    attention_of,
    checked,
    depth_of,
    heads_of,
    with_heads,
)
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN


def falcon(config: Config) -> tuple[LayerGroup, ...]:
    """new_decoder_architecture wins over multi_query, which wins over num_kv_heads."""
    text = config.text
    if text.is_true("new_decoder_architecture"):
        kv_heads = _stated(text)
    elif _shares_one(text):
        kv_heads = Value(1, "multi_query")
        stated = next((text.at(name) for name in KV_HEADS if text.data.get(name)), None)
        if stated is not None:
            text.note(f"{stated} does not count: multi_query leaves one KV head")
    else:
        kv_heads = _stated(text)
    return _read(text, kv_heads)


def gpt_bigcode(config: Config) -> tuple[LayerGroup, ...]:
    """One KV head unless multi_query is false."""
    text = config.text
    return _read(text, Value(1, "multi_query") if _shares_one(text) else heads_of(text))


def _shares_one(text: Keys) -> bool:
    given = text.flag("multi_query")
    return given.value if given is not None else bool(text.default("multi_query"))


def _stated(text: Keys) -> Value[int]:
    heads = heads_of(text)
    given = text.count(*KV_HEADS)
    return checked(text, given, heads) if given is not None else heads


def _read(text: Keys, kv_heads: Value[int]) -> tuple[LayerGroup, ...]:
    # the stated count may be no divisor of the heads (71 beside one that counts): it is not read
    plain = Keys({k: v for k, v in text.data.items() if k not in KV_HEADS}, text.path,
                 text.ledger, text.model_type)  # fmt: skip
    layer = with_heads(attention_of(plain), kv_heads=kv_heads)
    depth = depth_of(text)
    names = Value(["full"] * depth.value, depth.source)
    return decoder.build(plain, names, PLAIN, layer)
