"""Zamba: a Mamba state in every layer, and now and then attention on twice the hidden width."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model import states
from attnctl.model.attention import HIDDEN, LAYERS, depth_of, heads_of, kv_heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.states import need, ratio

_ZAMBA2_HYBRID = frozenset((6, 12, 18, 24, 30, 36, 42, 47, 51))


def zamba1(config: Config) -> tuple[LayerGroup, ...]:
    """Mamba-1 in every layer, attention too at an offset of each period."""
    return _read(config, states.mamba1(config.text), _names1(config.text))


def zamba2(config: Config) -> tuple[LayerGroup, ...]:
    """Mamba-2 in every layer, attention too in the hybrid ones, which share a few weight blocks."""
    return _read(config, states.mamba2(config.text), _names2(config.text))


def _read(config: Config, state: LayerGroup, names: Value[list[str]]) -> tuple[LayerGroup, ...]:
    full = _attention(config.text)
    full = msgspec.structs.replace(full, sources={**full.sources, "kind": names.source})
    return assemble(names.value, lambda name: [full, state] if name == "hybrid" else [state])


def _attention(text: Keys) -> LayerGroup:
    """Heads as wide as twice the hidden size over their number; the scale is that of half."""
    heads = heads_of(text)
    kv_heads = kv_heads_of(text, heads)
    hidden = need(text, "hidden size", *HIDDEN)
    stated = text.count("attention_head_dim")
    size = stated or ratio(text, Value(2 * hidden.value, f"2 * {hidden.source}"), heads)
    notes: dict[str, Any] = {"scale_from": size.value // 2}
    blocks = text.count("num_mem_blocks")
    if blocks is not None:
        notes = {"shared_weight_blocks": blocks.value, **notes}
    return LayerGroup(
        kind="full",
        layers=(),
        head_size=size.value,
        num_heads=heads.value,
        num_kv_heads=kv_heads.value,
        notes=notes,
        sources=sources(head_size=size, num_heads=heads, num_kv_heads=kv_heads),
    )


def _names1(text: Keys) -> Value[list[str]]:
    depth, listed = _listed(text)
    if listed is not None:
        return listed
    period = text.count_or_default("attn_layer_period") or Value(6, "default of zamba")
    offset = text.whole("attn_layer_offset") or text.default("attn_layer_offset")
    start = offset.value if offset is not None else 4
    # the first hybrid layer is the third; the pattern counts from the layer after it
    hybrid = [i == 2 or (i > 2 and (i - 3) % period.value == start) for i in range(depth)]
    return Value(["hybrid" if h else "mamba" for h in hybrid], period.source)


def _names2(text: Keys) -> Value[list[str]]:
    depth, listed = _listed(text)
    if listed is not None:
        return listed
    chosen = text.wholes("hybrid_layer_ids")
    ids = frozenset(chosen.value) if chosen is not None else _ZAMBA2_HYBRID
    source = chosen.source if chosen is not None else "pattern of zamba2"
    return Value(["hybrid" if i in ids else "mamba" for i in range(depth)], source)


def _listed(text: Keys) -> tuple[int, Value[list[str]] | None]:
    depth = depth_of(text).value
    return depth, names_in_file(text, depth if text.has(*LAYERS) else None)
