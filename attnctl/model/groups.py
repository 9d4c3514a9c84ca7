"""Puts per-layer demands together into groups, in the order in which readers expect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from attnctl.model.spec import SSM_KINDS, LayerGroup

Slot = TypeVar("Slot")

Build = Callable[[Slot], Sequence[LayerGroup]]


def assemble(
    slots: Sequence[Slot], build: Build[Slot], shared: Mapping[int, int] | None = None
) -> tuple[LayerGroup, ...]:
    """Groups of the layers whose slots build equal demands: attention, then states, then none.

    slots: one hashable per layer, counted from zero; build: slot -> the groups that such a layer
    belongs to, without layer ids (two for a layer with KV cache and state); shared: layer that
    writes no KV -> the layer whose cache it reads (its slot must differ from an owner's).
    """
    places: dict[Slot, list[int]] = {}
    for layer, slot in enumerate(slots):
        places.setdefault(slot, []).append(layer)
    found: list[tuple[LayerGroup, list[int]]] = []
    for slot, layers in places.items():
        for template in build(slot):
            equal = next((ids for group, ids in found if group == template), None)
            if equal is None:
                found.append((template, list(layers)))
            else:
                equal.extend(layers)
    made = [_placed(group, sorted(ids), shared or {}) for group, ids in found]
    return in_order(made)


def in_order(groups: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Encoder before decoder; attention before cross-attention, states, then cacheless blocks."""
    return tuple(sorted((g for g in groups if g.layers), key=_rank))


def _rank(group: LayerGroup) -> tuple[bool, int, int]:
    state = group.kind in SSM_KINDS or group.kind == "recurrent_other"
    order = 3 if group.kind == "none" else 2 if state else 1 if group.kind == "cross" else 0
    return group.stack == "decoder", order, group.layers[0]


def _placed(group: LayerGroup, layers: list[int], shared: Mapping[int, int]) -> LayerGroup:
    if group.kind == "none" or group.kind in SSM_KINDS or not any(i in shared for i in layers):
        return msgspec.structs.replace(group, layers=tuple(layers))
    sources = {layer: shared[layer] for layer in layers if layer in shared}
    notes = dict(group.notes)
    if len(set(sources.values())) == 1:
        notes["kv_shared_from"] = next(iter(sources.values()))
    return msgspec.structs.replace(group, layers=tuple(layers), kv_shared_from=sources, notes=notes)
