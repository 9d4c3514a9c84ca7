"""What each layer of a decoder is: by lists, indices, repeats, periods, its class, or a window."""

from __future__ import annotations

from attnctl.model import windows
from attnctl.model.attention import LAYERS, depth_of
from attnctl.model.class_patterns import assumed_types
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import canonical, masked, names_in_file, repeated
from attnctl.model.traits import Cycle, Traits

_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern")
_FULL_LAYERS = (
    "attn_layer_indices",
    "full_attn_idxs",
    "global_attn_idx",
    "full_attention_layers",
    "attn_layer_idx",
    "full_attention_idx",
)


def layer_names(text: Keys, traits: Traits) -> Value[list[str]]:
    """What each layer is: from lists, masks, indices, a period, or the window alone."""
    stated = text.has(*LAYERS)
    listed = names_in_file(text, depth_of(text).value if stated else None)
    if listed is not None:
        return listed
    depth = depth_of(text).value
    return (
        _by_selection(text, depth)
        or _by_index(text, depth)
        or _by_period(text, depth)
        or _by_repeat(text, depth)
        or _by_widths(text, depth)
        or _by_cycle(text, depth, traits)
        or _by_class(text, depth)
        or _by_window(text, depth, traits)
        or Value(["full"] * depth, "no key says otherwise")
    )


def cycle_names(text: Keys, depth: int, cycle: Cycle) -> Value[list[str]]:
    """One layer of each period is the odd one: its last or its first."""
    period = text.count(*cycle.keys) if cycle.keys else None
    length = period or Value(cycle.period, f"pattern of {text.model_type}")
    odd = length.value - 1 if cycle.end == "last" else 0
    names = [cycle.minority if i % length.value == odd else cycle.majority for i in range(depth)]
    return Value(names, length.source)


def _by_selection(text: Keys, depth: int) -> Value[list[str]] | None:
    """Layers in which an indexer picks blocks of keys, where a dict of its own marks them.

    As MiniMax-M3's files say it: one number a layer, 0 for full attention.
    """
    if text.is_false("sparse_attention_config.use_sparse_attention"):
        return None
    return masked(text, "sparse_attention_config.sparse_attention_freq", depth, "indexed", "full")


def _by_index(text: Keys, depth: int) -> Value[list[str]] | None:
    given = next((g for k in _FULL_LAYERS if (g := text.wholes(k)) and g.value), None)
    if given is None:
        return None
    chosen = set(given.value)
    if text.has("conv_L_cache"):
        other = "short_conv"
    elif windows.window_of(text) is not None and not text.has("mamba_d_state"):
        other = "sliding"
    else:
        other = "mamba"
    return Value(["full" if i in chosen else other for i in range(depth)], given.source)


def _by_period(text: Keys, depth: int) -> Value[list[str]] | None:
    """Attention at an offset of each period among Mamba layers, as Jamba's keys say it."""
    period = text.count("attn_layer_period") if text.has("mamba_d_state") else None
    if period is None:
        return None
    given = text.whole("attn_layer_offset")
    offset = given.value if given is not None else 0
    names = ["full" if i % period.value == offset else "mamba" for i in range(depth)]
    return Value(names, period.source)


def _by_repeat(text: Keys, depth: int) -> Value[list[str]] | None:
    for key in _PATTERNS:
        given = text.raw(key)
        if given is not None and isinstance(given.value, str | list):
            found = repeated(text, key, depth)
            slides = windows.window_or_default(text) is not None
            if found is not None:
                return found if slides else Value(["full"] * depth, found.source)
    return None


def _by_widths(text: Keys, depth: int) -> Value[list[str]] | None:
    """A window for each layer: those without one are full."""
    widths = windows.per_layer(text, depth)
    if widths is None:
        return None
    return Value(["sliding" if width else "full" for width in widths.value], widths.source)


def _by_cycle(text: Keys, depth: int, traits: Traits) -> Value[list[str]] | None:
    cycle = traits.cycle
    if cycle is None:
        period = text.count(*_PATTERNS)
        cycle = Cycle(period.value, "last", _PATTERNS) if period else None
    if cycle is None and (interval := text.count("full_attention_interval")):
        cycle = Cycle(interval.value, "last", ("full_attention_interval",), "linear")
    if cycle is None:
        return None
    if cycle.majority == "sliding" and windows.window_or_default(text) is None:
        return None
    return cycle_names(text, depth, cycle)


def _by_class(text: Keys, depth: int) -> Value[list[str]] | None:
    """The list that the class of this model type assumes."""
    types = assumed_types(text, depth)
    if types is None:
        return None
    return Value([canonical(text, Value(t, types.source)) for t in types.value], types.source)


def _by_window(text: Keys, depth: int, traits: Traits) -> Value[list[str]] | None:
    """No pattern: a window holds on all layers, or, where it is gated, from one layer upward."""
    window = windows.window_or_default(text) if traits.slides else windows.window_of(text)
    if window is None or windows.is_switched_off(text, traits.gated):
        return None
    first = text.whole("max_window_layers")
    if first is None and traits.gated:
        first = text.default("max_window_layers")
    start = first.value if first is not None else 0
    return Value(["sliding" if i >= start else "full" for i in range(depth)], window.source)
