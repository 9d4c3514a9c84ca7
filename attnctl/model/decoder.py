"""Reads any decoder from the generic keys, helped by what traits.py says of its model type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from attnctl.model import mla, states, windows
from attnctl.model.attention import LAYERS, attention_of, depth_of
from attnctl.model.class_patterns import assumed_types
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import canonical, names_in_file, repeated
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Cycle, Traits, traits_of
from attnctl.model.variation import Slot, slots_of, varied

_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern")
_FULL_LAYERS = (
    "attn_layer_indices",
    "full_attn_idxs",
    "global_attn_idx",
    "full_attention_layers",
    "attn_layer_idx",
    "full_attention_idx",
)
_LINEAR = ("linear", "mamba")
_STATES = ("gdn", "kda", "mamba1", "mamba2", "short_conv", "lightning")


def read(config: Config, traits: Traits | None = None) -> tuple[LayerGroup, ...]:
    """Groups of a decoder whose file says by itself what each layer is."""
    text = config.text
    known = traits or traits_of(text.model_type)
    return build(text, layer_names(text, known), known)


def build(
    text: Keys,
    names: Value[list[str]],
    traits: Traits,
    full: LayerGroup | None = None,
    shared: Mapping[int, int] | None = None,
) -> tuple[LayerGroup, ...]:
    """Groups for a list of canonical layer names; `full` is the plain attention layer."""
    names = _with_windows(text, names)
    needs_attention = any(name not in (*_LINEAR, *_STATES, "none") for name in names.value)
    base = full or (plain_layer(text, traits) if needs_attention else _nothing())
    alternates = len(set(names.value)) > 1

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        made = of_name(slot.name, varied(base, slot), text, traits)
        placed = [_positioned(g, traits, alternates) for g in made]
        return [
            msgspec.structs.replace(g, sources={**g.sources, "kind": names.source}) for g in placed
        ]

    return assemble(slots_of(text, names.value, shared or {}), of_slot, shared)


def _with_windows(text: Keys, names: Value[list[str]]) -> Value[list[str]]:
    """The same names, with full attention for sliding layers of a model without a window."""
    if "sliding" not in names.value or windows.window_or_default(text) is not None:
        return names
    text.note(f"there is no window for the sliding layers of {names.source}: read as full")
    return Value(["full" if name == "sliding" else name for name in names.value], names.source)


def plain_layer(text: Keys, traits: Traits) -> LayerGroup:
    """The model's attention layer without window: latent where the file describes one."""
    layer = mla.mla_of(text) if mla.is_mla(text) else attention_of(text)
    if not bidirectional(text):
        return msgspec.structs.replace(
            layer, sinks=layer.sinks or traits.sinks, alibi=layer.alibi or traits.alibi
        )
    return msgspec.structs.replace(layer, kind="encoder_self", alibi=layer.alibi or traits.alibi)


def bidirectional(text: Keys) -> bool:
    """True where one flag turns the decoder into an encoder."""
    given = text.raw("use_bidirectional_attention")
    if given is not None and given.value in (True, "all"):
        return True
    return text.is_false("is_causal")


def of_name(name: str, full: LayerGroup, text: Keys, traits: Traits) -> Sequence[LayerGroup]:
    """The groups that a layer of this name belongs to, without ids."""
    if name in ("hybrid", "hybrid_sliding"):
        inner = "sliding" if name == "hybrid_sliding" else "full"
        return [*of_name(inner, full, text, traits), *of_name("mamba", full, text, traits)]
    if name == "full":
        return [full]
    if name == "sliding":
        return [_sliding(full, text)]
    if name == "chunked":
        return [windows.chunked(full, text)]
    if name == "none":
        return [LayerGroup(kind="none", layers=())]
    if name == "indexed":
        return [_indexed(full, text)]
    if name == "cross":
        return [msgspec.structs.replace(full, kind="cross")]
    if name in _LINEAR:
        fallback = states.linear_kind if name == "linear" else states.mamba_kind
        return [states.state_of(traits.linear or fallback(text), text)]
    if name in _STATES:
        return [states.state_of(name, text)]
    raise text.wrong(Value(name, "layer_types"), f"a layer kind of model type {text.model_type!r}")


def layer_names(text: Keys, traits: Traits) -> Value[list[str]]:
    """What each layer is: from lists, masks, indices, a period, or the window alone."""
    stated = text.has(*LAYERS)
    listed = names_in_file(text, depth_of(text).value if stated else None)
    if listed is not None:
        return listed
    depth = depth_of(text).value
    return (
        _by_index(text, depth)
        or _by_repeat(text, depth)
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


def _by_repeat(text: Keys, depth: int) -> Value[list[str]] | None:
    for key in _PATTERNS:
        given = text.raw(key)
        if given is not None and isinstance(given.value, str | list):
            found = repeated(text, key, depth)
            slides = windows.window_or_default(text) is not None
            if found is not None:
                return found if slides else Value(["full"] * depth, found.source)
    return None


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


def _sliding(full: LayerGroup, text: Keys) -> LayerGroup:
    window = windows.window_or_default(text)
    if window is None:
        return full
    if full.kind == "encoder_self":
        return windows.two_sided(full, window)
    return windows.slid(full, window, text)


def _indexed(full: LayerGroup, text: Keys) -> LayerGroup:
    """Sparse attention by an indexer: latent where there is a latent, else over plain KV."""
    if full.mla is not None:
        return full
    notes: dict[str, Any] = {**full.notes, "selection": "an indexer picks the keys of each query"}
    return msgspec.structs.replace(full, kind="blocksparse", notes=notes)


def _positioned(group: LayerGroup, traits: Traits, alternates: bool) -> LayerGroup:
    bare = traits.nope == "all" or (traits.nope == "full" and alternates)
    if not bare or group.kind != "full":
        return group
    return msgspec.structs.replace(group, notes={**group.notes, "nope": True})


def _nothing() -> LayerGroup:
    return LayerGroup(kind="none", layers=())
