"""Where the yes/no demands of a group came from: a key of the file, or the model type alone."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from attnctl.model.attention import SINKS
from attnctl.model.spec import LayerGroup

# demand -> last parts of the keys that can raise it
_KEYS = {
    "sinks": (*SINKS, "add_swa_attention_sink_bias", "add_full_attention_sink_bias"),
    "alibi": ("alibi", "use_alibi", "position_embedding_type", "alibi_starting_size"),
    "prefix_lm": ("prefix_lm", "use_bidirectional_attention"),
}


def with_sources(
    groups: tuple[LayerGroup, ...], used: Collection[str], model_type: str | None
) -> tuple[LayerGroup, ...]:
    """The groups with a source for each demand that they make and do not give one for."""
    return tuple(_sourced(group, used, model_type) for group in groups)


def _sourced(group: LayerGroup, used: Collection[str], model_type: str | None) -> LayerGroup:
    missing = {
        field: _source(keys, used, model_type)
        for field, keys in _KEYS.items()
        if getattr(group, field) and field not in group.sources
    }
    if not missing:
        return group
    return msgspec.structs.replace(group, sources={**group.sources, **missing})


def _source(keys: tuple[str, ...], used: Collection[str], model_type: str | None) -> str:
    for key in keys:
        for path in used:
            if path.rpartition(".")[2] == key:
                return path
    return f"model_type {model_type}" if model_type else "its family"
