"""Gemma 3n and 4: local and global layers, of which the last read the caches of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from attnctl.model import decoder, plan
from attnctl.model.attention import LAYERS, checked, depth_of, with_heads
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN, Cycle
from attnctl.model.variation import Slot, slots_of, varied

_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")


def gemma3n(config: Config) -> tuple[LayerGroup, ...]:
    """Full attention on the last of each five; the last layers share the KV of earlier ones."""
    text = config.text
    names = _names(text, Cycle(5, "last", _PATTERN))
    return decoder.build(text, names, PLAIN, shared=shared_kv(text, names.value))


def gemma4(config: Config) -> tuple[LayerGroup, ...]:
    """As gemma3n, with wider heads and their own KV heads on the full layers."""
    text = config.text
    names = _names(text, Cycle(6, "last", _PATTERN))
    if names.value and names.value[-1] != "full":
        names = Value([*names.value[:-1], "full"], names.source)
        text.note("the last layer is full attention whatever the list says")
    shared = shared_kv(text, names.value)
    local = decoder.plain_layer(text, PLAIN)
    wide = local if text.has("per_layer_config") else _global_layer(text, local)

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        base = varied(wide if slot.name == "full" else local, slot)
        made = decoder.of_name(slot.name, base, text, PLAIN)
        return [
            msgspec.structs.replace(g, sources={**g.sources, "kind": names.source}) for g in made
        ]

    return assemble(slots_of(text, names.value, shared), of_slot, shared)


def shared_kv(text: Keys, names: Sequence[str]) -> Mapping[int, int]:
    """Layer -> the layer whose cache it reads: the last one of its kind that keeps its own."""
    given = text.whole("num_kv_shared_layers") or text.default("num_kv_shared_layers")
    count = given.value if given is not None else 0
    first = max(0, len(names) - count)
    owners = {name: layer for layer, name in enumerate(names[:first])}
    return {
        layer: owners[names[layer]] for layer in range(first, len(names)) if names[layer] in owners
    }


def _global_layer(text: Keys, local: LayerGroup) -> LayerGroup:
    width = text.count("global_head_dim") or Value(512, f"default of {text.model_type}")
    heads = Value(local.num_heads or 1, local.sources.get("num_heads", ""))
    equal = text.is_true("attention_k_eq_v")
    own = text.count("num_global_key_value_heads")
    if own is not None and equal:
        wide = with_heads(local, kv_heads=checked(text, own, heads), size=width)
    else:
        wide = with_heads(local, size=width)
    notes: dict[str, Any] = {**wide.notes, "k_equals_v": True} if equal else wide.notes
    return msgspec.structs.replace(wide, notes=notes)


def _names(text: Keys, cycle: Cycle) -> Value[list[str]]:
    stated = text.has(*LAYERS)
    listed = names_in_file(text, depth_of(text).value if stated else None)
    return listed or plan.cycle_names(text, depth_of(text).value, cycle)
