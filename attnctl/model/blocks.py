"""Vision encoders whose layers differ: square windows of patches, whole images, convolutions."""

from __future__ import annotations

from typing import Literal

from attnctl.model.class_patterns import assumed_types
from attnctl.model.keys import Keys

Form = Literal["whole", "square", "convolution"]

WHOLE_LAYERS = ("fullatt_block_indexes", "global_attn_indexes")
SQUARE_LAYERS = ("window_block_indices", "window_block_indexes")


def layer_forms(keys: Keys, layers: int) -> tuple[Form, ...]:
    """What each layer sees: the whole input, or a square of patches; or that it convolves."""
    types = keys.items("layer_types") or assumed_types(keys, layers)
    if types is not None and len(types.value) >= layers:
        return tuple(form_of(str(name)) for name in types.value[:layers])
    whole = first_ids(keys, WHOLE_LAYERS)
    if whole is not None:
        return tuple("whole" if i in whole else "square" for i in range(layers))
    square = first_ids(keys, SQUARE_LAYERS) or frozenset()
    return tuple("square" if i in square else "whole" for i in range(layers))


def form_of(name: str) -> Form:
    if name == "conv":
        return "convolution"
    return "square" if name == "window_attention" else "whole"


def first_ids(keys: Keys, names: tuple[str, ...]) -> frozenset[int] | None:
    for name in names:
        given = keys.wholes(name)
        if given is not None:
            return frozenset(given.value)
    assumed = keys.default(*(name for name in names if name not in keys.data))
    return frozenset(assumed.value) if assumed and isinstance(assumed.value, list) else None


def square_notes(keys: Keys) -> dict[str, int | bool]:
    """The side of the square as the file gives it (patches, or pixels in Qwen2.5-VL)."""
    side = keys.data.get("window_size")
    given = keys.count("window_size") if isinstance(side, int) else None
    return {"window_2d": given.value if given else True}
