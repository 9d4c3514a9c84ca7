"""Hymba: attention and a Mamba state side by side in every layer; neighbours share KV."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from attnctl.model import states, windows
from attnctl.model.attention import attention_of, depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.variation import Slot


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full layers of global_attn_idx, sliding ones otherwise, and a Mamba-1 state in each."""
    text = config.text
    depth = depth_of(text).value
    chosen = text.wholes("global_attn_idx")
    wide = frozenset(chosen.value if chosen else ())
    shared = _shared(text, depth)
    full, state = _attention(text), states.mamba1(text)
    window = windows.window_of(text)

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        layer = full if slot.name == "full" else windows.slid(full, window, text)
        return [layer, state]

    slots = [Slot("full" if i in wide else "sliding", shared=i in shared) for i in range(depth)]
    return assemble(slots, of_slot, shared)


def _attention(text: Keys) -> LayerGroup:
    """Widths of -1 are to be derived: K from hidden / heads."""
    layer = attention_of(_without_minus_one(text))
    value = _without_minus_one(text).count("v_head_dim")
    if value is None or value.value == layer.head_size:
        return layer
    paths = {**layer.sources, "head_size_v": value.source}
    return msgspec.structs.replace(layer, head_size_v=value.value, sources=paths)


def _without_minus_one(text: Keys) -> Keys:
    kept = {key: value for key, value in text.data.items() if value != -1}
    return Keys(kept, text.path, text.ledger, text.model_type)


def _shared(text: Keys, depth: int) -> dict[int, int]:
    """Each group of kv_reuse_group keeps the KV of its first layer."""
    given = text.items("kv_reuse_group")
    if given is None:
        return {}
    shared = {}
    for entry in text.each(given):
        members = entry.value
        if not isinstance(members, list) or not all(_is_layer(m, depth) for m in members):
            raise text.wrong(entry, f"a list of layers below {depth}")
        shared.update({member: members[0] for member in members[1:] if member != members[0]})
    return shared


def _is_layer(member: object, depth: int) -> bool:
    return isinstance(member, int) and not isinstance(member, bool) and 0 <= member < depth
