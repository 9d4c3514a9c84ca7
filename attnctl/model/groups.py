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
    reads = shared or {}
    places: dict[Slot, list[int]] = {}
    for layer, slot in enumerate(slots):
        places.setdefault(slot, []).append(layer)
    found: list[tuple[LayerGroup, bool, list[int]]] = []
    for slot, layers in places.items():
        for template in build(slot):
            borrows = template.needs_kv_cache and layers[0] in reads
            equal = (
                ids for group, as_well, ids in found if (group, as_well) == (template, borrows)
            )
            known = next(equal, None)
            if known is None:
                found.append((template, borrows, list(layers)))
            else:
                known.extend(layers)
    return in_order(_placed(g, sorted(ids), reads if borrows else {}) for g, borrows, ids in found)


def in_order(groups: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Encoder before decoder; attention before cross-attention, states, then cacheless blocks."""
    return tuple(sorted((g for g in groups if g.layers), key=_rank))


def _rank(group: LayerGroup) -> tuple[bool, int, int]:
    state = group.kind in SSM_KINDS or group.kind == "recurrent_other"
    order = 3 if group.kind == "none" else 2 if state else 1 if group.kind == "cross" else 0
    return group.stack != "encoder", order, group.layers[0]


def _placed(group: LayerGroup, layers: list[int], shared: Mapping[int, int]) -> LayerGroup:
    """The group with its layers; where they borrow KV, with the layers that they read."""
    owners = {layer: shared[layer] for layer in layers if layer in shared}
    notes = dict(group.notes)
    if len(set(owners.values())) == 1:
        notes["kv_shared_from"] = next(iter(owners.values()))
    return msgspec.structs.replace(group, layers=tuple(layers), kv_shared_from=owners, notes=notes)
