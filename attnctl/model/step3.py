"""Step-3.5 and 3.7: sliding layers have their own number of query heads."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import decoder, plan
from attnctl.model.attention import checked, with_heads
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN
from attnctl.model.variation import Slot, slots_of, varied

_OTHER = "attention_other_setting."


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full and sliding layers; attention_other_setting holds the heads of the sliding ones."""
    text = config.text
    names = plan.layer_names(text, PLAIN)
    full = decoder.plain_layer(text, PLAIN)
    local = _sliding_heads(text, full)

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        base = varied(local if slot.name == "sliding" else full, slot)
        made = decoder.of_name(slot.name, base, text, PLAIN)
        return [
            msgspec.structs.replace(g, sources={**g.sources, "kind": names.source}) for g in made
        ]

    return assemble(slots_of(text, names.value, {}), of_slot)


def _sliding_heads(text: Keys, full: LayerGroup) -> LayerGroup:
    heads = text.count("num_sliding_attention_heads", _OTHER + "num_attention_heads")
    kv_heads = text.count(_OTHER + "num_attention_groups", _OTHER + "num_key_value_heads")
    size = text.count(_OTHER + "head_dim")
    local = with_heads(full, heads, kv_heads, size)
    total = Value(local.num_heads or 1, local.sources.get("num_heads", ""))
    shared = Value(local.num_kv_heads or 1, local.sources.get("num_kv_heads", ""))
    checked(text, shared, total)
    return local
