"""The kinds of layers that a model type's class assumes where the file lists none."""

from __future__ import annotations

from attnctl.model.keys import Keys, Value

LONGEST_PERIOD = 12  # the table keeps longer lists only where nothing repeats


def assumed_types(keys: Keys, depth: int) -> Value[list[str]] | None:
    """One name per layer: the class's own list if it fits, or its period as often as needed."""
    if "layer_types" in keys.data:
        return None
    assumed = keys.default("layer_types")
    if assumed is None or not isinstance(assumed.value, list):
        return None
    types = [str(name) for name in assumed.value]
    if len(types) == depth:
        return Value(types, assumed.source)
    if not 0 < len(types) <= LONGEST_PERIOD:
        return None
    return Value([types[i % len(types)] for i in range(depth)], assumed.source)
