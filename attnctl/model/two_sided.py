"""Which layers of an encoder look through a two-sided window, and how wide it is.

A two-sided window is given as `window`, the whole width that the family declares or implies, and
`window_right`, the tokens to the right of the query; the same number lies to its left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from attnctl.model.class_patterns import assumed_types
from attnctl.model.keys import Keys, Value


class TwoSided(msgspec.Struct, frozen=True):
    """A two-sided window: whole width, tokens on each side, where that was stated."""

    width: int
    side: int
    source: str


# keys that state the whole width of the window
WHOLE_WIDTH: Mapping[str, tuple[str, ...]] = {
    "modernbert": ("local_attention",),
    "longformer": ("attention_window",),
    "led": ("attention_window",),
    "t5gemma2_text": ("sliding_window",),
}
# families that look this many tokens to either side
HALF_WIDTH: Mapping[str, tuple[str, ...]] = {
    "embedding_gemma2_text": ("sliding_window",),
    "neomme": ("sliding_window",),
    "openai_privacy_filter": ("sliding_window",),
    "t5_gemma_module": ("sliding_window",),
    "ultrabert": ("sliding_window",),
    "longt5": ("local_radius",),
}
ALWAYS_LOCAL = frozenset({"led", "longformer", "longt5", "openai_privacy_filter"})


def layer_windows(keys: Keys, layers: int) -> tuple[TwoSided | None, ...]:
    """One entry per layer: its window, or None where it sees everything."""
    stated = stated_windows(keys, layers)
    if stated is None:
        return (None,) * layers
    local = local_layers(keys, layers)
    return tuple(window if i in local else None for i, window in enumerate(stated))


def stated_windows(keys: Keys, layers: int) -> Sequence[TwoSided] | None:
    kind = keys.model_type or ""
    names = WHOLE_WIDTH.get(kind)
    halves = HALF_WIDTH.get(kind, ("sliding_window",))
    if names and isinstance(keys.data.get(names[0]), list):
        widths = keys.wholes(*names)
        if widths is None or len(widths.value) != layers:
            raise keys.missing(f"list of {layers} window widths", *names)
        return [TwoSided(width, width // 2, widths.source) for width in widths.value]
    given = keys.count_or_default(*(names or halves))
    if given is None:
        return None
    common = whole(given) if names else each_side(given)
    own = overrides(keys)
    return [own.get(layer, common) for layer in range(layers)]


def overrides(keys: Keys) -> Mapping[int, TwoSided]:
    """Windows that `per_layer_config` gives to single layers."""
    section = keys.sub("per_layer_config")
    found: dict[int, TwoSided] = {}
    for layer, entry in section.data.items() if section else ():
        if not (str(layer).isdigit() and len(str(layer)) < 6 and isinstance(entry, dict)):
            continue
        half = Keys(entry, section.path, keys.ledger).count("sliding_window") if section else None
        if half is not None:
            found[int(layer)] = each_side(half)
    return found


def whole(width: Value[int]) -> TwoSided:
    return TwoSided(width.value, width.value // 2, width.source)


def each_side(half: Value[int]) -> TwoSided:
    return TwoSided(2 * half.value, half.value, half.source)


def local_layers(keys: Keys, layers: int) -> frozenset[int]:
    """Ids of the layers that have the window, from the list, the rhythm or the family."""
    if keys.model_type in ALWAYS_LOCAL:
        return frozenset(range(layers))
    rhythm = keys.count("global_attn_every_n_layers")
    if rhythm is not None and not keys.has("layer_types"):
        # ModernBERT: the first of each group sees everything
        return frozenset(i for i in range(layers) if i % rhythm.value)
    types = keys.items("layer_types") or assumed_types(keys, layers)
    named = enumerate(types.value[:layers] if types else ())
    return frozenset(i for i, kind in named if "sliding" in str(kind) or "local" in str(kind))
