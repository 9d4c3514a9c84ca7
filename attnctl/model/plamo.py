"""PLaMo: KV shared by several heads, Mamba-2 around attention (2), a window named otherwise (3)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec

from attnctl.model import decoder, states, windows
from attnctl.model.attention import attention_of, depth_of, heads_of, with_heads
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.plan import layer_names
from attnctl.model.samba import step_of
from attnctl.model.spec import LayerGroup, State
from attnctl.model.traits import traits_of
from attnctl.model.variation import Slot


def plamo(config: Config) -> tuple[LayerGroup, ...]:
    """The first: n_shared_head query heads read one KV head."""
    text = config.text
    sharing, heads = text.count("n_shared_head"), heads_of(text)
    if sharing is None:
        return decoder.read(config)
    count = Value(ceil(heads.value / sharing.value), f"{heads.source} / {sharing.source}")
    known = traits_of(text.model_type)
    full = with_heads(decoder.plain_layer(text, known), kv_heads=count)
    return decoder.build(text, layer_names(text, known), known, full)


def plamo2(config: Config) -> tuple[LayerGroup, ...]:
    """The second: an attention layer in the middle of each mamba_step layers, else Mamba-2."""
    text = config.text
    depth, step = depth_of(text).value, step_of(text, "mamba_step")
    given = text.data.get("mamba_step")
    if given in (0, 1) and not text.is_false("mamba_enabled"):
        raise text.wrong(Value(given, text.at("mamba_step")), "2 or more, or mamba_enabled false,")
    whole = text.wholes("full_attention_idx")
    wide = frozenset(whole.value if whole else ())
    full, window = attention_of(text), windows.window_of(text)

    def name(layer: int) -> str:
        if step and _is_mamba(layer, depth, step.value):
            return "mamba"
        return "full" if layer in wide or window is None else "sliding"

    names = [name(layer) for layer in range(depth)]
    state = _state(text) if "mamba" in names else None

    def of_slot(slot: Slot) -> Sequence[LayerGroup]:
        if slot.name == "mamba" and state is not None:
            return [state]
        return [windows.slid(full, window, text) if slot.name == "sliding" and window else full]

    return assemble([Slot(name) for name in names], of_slot)


def plamo3(config: Config) -> tuple[LayerGroup, ...]:
    """The third: full attention in the last of each sliding_window_pattern layers."""
    text = config.text
    width = text.count("window_size")
    named = {} if width is None or text.has(*windows.WINDOW) else {"sliding_window": width.value}
    keys = Keys({**text.data, **named}, text.path, text.ledger, text.model_type)
    known = traits_of(text.model_type)
    return decoder.build(keys, layer_names(keys, known), known)


def _is_mamba(layer: int, depth: int, step: int) -> bool:
    if depth <= step // 2:  # too few for one group: attention comes last
        return layer != depth - 1
    return layer % step != step // 2


def _state(text: Keys) -> LayerGroup:
    """Its heads are as wide as those of attention; B and C go past the convolution."""
    width = text.count("hidden_size_per_head")
    stated = {} if width is None else {"mamba_head_dim": width.value}
    layer = states.mamba2(Keys({**text.data, **stated}, text.path, text.ledger, text.model_type))
    assert isinstance(layer.state, State)
    inner, columns = layer.state.inner or 0, (layer.state.conv_kernel or 1) - 1
    own = msgspec.structs.replace(layer.state, n_groups=0, conv_state=(inner, columns))
    return msgspec.structs.replace(layer, state=own)
