"""Reads any decoder from the generic keys, helped by what traits.py says of its model type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from attnctl.model import mla, windows
from attnctl.model.attention import attention_of
from attnctl.model.families import is_foreign
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.plan import layer_names
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits, traits_of
from attnctl.model.variation import Slot, slots_of, varied

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
        placed = [_positioned(_sunk(g, text), traits, alternates) for g in made]
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
    latent = mla.is_mla(text)
    layer = mla.mla_of(text) if latent else _own_value_width(text, attention_of(text))
    if not bidirectional(text):
        return msgspec.structs.replace(
            layer, sinks=layer.sinks or traits.sinks, alibi=layer.alibi or traits.alibi
        )
    return msgspec.structs.replace(layer, kind="encoder_self", alibi=layer.alibi or traits.alibi)


def _own_value_width(text: Keys, layer: LayerGroup) -> LayerGroup:
    """V of another width than K, where a model type that nobody here knows states one.

    The classes of known types read no such key; there it is a leftover.
    """
    given = text.count("v_head_dim") if text.has("v_head_dim") else None
    if given is None or given.value == layer.head_size or not is_foreign(text.model_type):
        return layer
    paths = {**layer.sources, "head_size_v": given.source}
    return msgspec.structs.replace(layer, head_size_v=given.value, sources=paths)


def _sunk(group: LayerGroup, text: Keys) -> LayerGroup:
    """The group with learned sinks where a flag gives them to layers of its kind alone."""
    kind = {"sliding": "swa", "full": "full"}.get(group.kind)
    if kind is None or not text.is_true(f"add_{kind}_attention_sink_bias"):
        return group
    return msgspec.structs.replace(group, sinks=True)


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
        return [_indexed(full)]
    if name == "cross":
        return [msgspec.structs.replace(full, kind="cross")]
    if name in _LINEAR or name in _STATES:
        return [_state(name, text, traits)]
    raise text.wrong(Value(name, "layer_types"), f"a layer kind of model type {text.model_type!r}")


def _state(name: str, text: Keys, traits: Traits) -> LayerGroup:
    from attnctl.model import state_kinds  # a model without states reads none of it

    if name in _STATES:
        return state_kinds.state_of(name, text)
    fallback = state_kinds.linear_kind if name == "linear" else state_kinds.mamba_kind
    return state_kinds.state_of(traits.linear or fallback(text), text)


def _sliding(full: LayerGroup, text: Keys) -> LayerGroup:
    window = windows.window_or_default(text)
    if window is None:
        return full
    if full.kind == "encoder_self":
        return windows.two_sided(full, window)
    return windows.slid(full, window, text)


def _indexed(full: LayerGroup) -> LayerGroup:
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
