"""Decoders whose layers state more sizes of their own than heads and head size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attnctl.model import decoder
from attnctl.model.attention import depth_of
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.plan import layer_names
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import traits_of

Override = tuple[tuple[str, Any], ...]  # hashable: layers with equal overrides are read together


def read(config: Config) -> tuple[LayerGroup, ...]:
    """The groups of each set of layers with equal overrides, read as if those were the model's."""
    text = config.text
    traits = traits_of(text.model_type)
    names = layer_names(text, traits)
    made: list[LayerGroup] = []
    for override, layers in layer_sets(text).items():
        stated = dict(override)
        keys = Keys({**text.data, **stated}, text.path, text.ledger, text.model_type)
        for group in decoder.build(keys, names, traits):
            kept = tuple(layer for layer in group.layers if layer in layers)
            if kept:
                found = placed(group, kept, stated, text.at(f"per_layer_config.{kept[0]}"))
                made.append(found)
    return in_order(made)


def layer_sets(text: Keys) -> Mapping[Override, frozenset[int]]:
    """Layers by what they override; () for those that override nothing."""
    section = text.sub("per_layer_config")
    own: dict[int, Override] = {}
    for key, entry in section.data.items() if section else ():
        if str(key).isdigit() and len(str(key)) < 6 and isinstance(entry, dict):
            plain = {k: v for k, v in entry.items() if isinstance(v, int | float | str)}
            own[int(key)] = tuple(sorted(plain.items()))
    sets: dict[Override, set[int]] = {}
    for layer in range(depth_of(text).value):
        sets.setdefault(own.get(layer, ()), set()).add(layer)
    return {override: frozenset(layers) for override, layers in sets.items()}


def placed(
    group: LayerGroup, layers: tuple[int, ...], stated: Mapping[str, Any], section: str
) -> LayerGroup:
    """The group of those layers, its sources pointing at the overrides that decided."""
    sources = {
        field: f"{section}.{path.rpartition('.')[2]}" if path.rpartition(".")[2] in stated else path
        for field, path in group.sources.items()
    }
    # a window is narrower than what an indexer would pick, so local layers have none
    indexer = None if group.kind == "sliding" else group.indexer
    return msgspec.structs.replace(group, layers=layers, sources=sources, indexer=indexer)
