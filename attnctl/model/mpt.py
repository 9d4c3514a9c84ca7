"""MPT: what attention is like stands inside attn_config."""

from __future__ import annotations

import msgspec

from attnctl.model import decoder, windows
from attnctl.model.attention import attention_of, depth_of, with_heads
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN


def read(config: Config) -> tuple[LayerGroup, ...]:
    """ALiBi unless attn_config says otherwise, as in the class; KV heads by attn_type."""
    text = config.text
    layer = attention_of(text)
    kind = text.text("attn_config.attn_type")
    if kind is not None and kind.value == "multiquery_attention":
        layer = with_heads(layer, kv_heads=Value(1, kind.source))
    alibi = text.flag("attn_config.alibi")
    layer = msgspec.structs.replace(
        layer,
        alibi=alibi.value if alibi is not None else not text.is_true("attn_config.rope"),
        prefix_lm=text.is_true("attn_config.prefix_lm"),
    )
    layer = windows.slid(layer, _window(text), text)
    depth = depth_of(text)
    return decoder.build(text, Value(["full"] * depth.value, depth.source), PLAIN, layer)


def _window(text: Keys) -> Value[int] | None:
    given = text.raw("attn_config.sliding_window_size")
    return (
        None
        if given is None or given.value == -1
        else text.count("attn_config.sliding_window_size")
    )
