"""MiMo-V2: K and V of different widths, own heads on sliding layers, sinks by two flags."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import windows
from attnctl.model.attention import LAYERS, depth_of, head_size_of, heads_of, kv_heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value, sources
from attnctl.model.layer_names import masked, names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def read(config: Config) -> tuple[LayerGroup, ...]:
    """In hybrid_layer_pattern a one means sliding; attention_chunk_size is not used."""
    text = config.text
    names = _names(text)
    full = _layer(text, "", text.is_true("add_full_attention_sink_bias"))
    local = windows.slid(_layer(text, "swa_", _slides_with_sinks(text)),
                         windows.window_or_default(text), text)  # fmt: skip

    def of_name(name: str) -> Sequence[LayerGroup]:
        group = local if name == "sliding" else full
        return [msgspec.structs.replace(group, sources={**group.sources, "kind": names.source})]

    return assemble(names.value, of_name)


def _layer(text: Keys, prefix: str, sinks: bool) -> LayerGroup:
    """One kind of layer; its own keys first, those of the full layers where it has none."""
    heads = text.count(prefix + "num_attention_heads") or heads_of(text)
    own = text.count(prefix + "num_key_value_heads")
    kv_heads = own or _doubled(kv_heads_of(text, heads), bool(prefix))
    size = text.count(prefix + "head_dim") or head_size_of(text, heads)
    value = text.count(prefix + "v_head_dim") or text.count_or_default("v_head_dim") or size
    return LayerGroup(
        kind="full",
        layers=(),
        head_size=size.value,
        head_size_v=value.value if value.value != size.value else None,
        num_heads=heads.value,
        num_kv_heads=kv_heads.value,
        sinks=sinks,
        sources=sources(head_size=size, head_size_v=value, num_heads=heads, num_kv_heads=kv_heads),
    )


def _doubled(kv_heads: Value[int], sliding: bool) -> Value[int]:
    return Value(2 * kv_heads.value, f"2 * {kv_heads.source}") if sliding else kv_heads


def _slides_with_sinks(text: Keys) -> bool:
    given = text.flag("add_swa_attention_sink_bias")
    return given.value if given is not None else text.model_type == "mimo_v2_flash"


def _names(text: Keys) -> Value[list[str]]:
    depth = depth_of(text).value
    found = masked(text, "hybrid_layer_pattern", depth, "sliding", "full")
    found = found or names_in_file(text, depth if text.has(*LAYERS) else None)
    if found is not None:
        return found
    names = ["sliding" if i and (i + 1) % 6 else "full" for i in range(depth)]
    return Value(names, f"pattern of {text.model_type}")
