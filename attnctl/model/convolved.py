"""Decoders that attend to convolved tokens: a KV cache and a short state in each layer."""

from __future__ import annotations

import msgspec

from attnctl.model import decoder, states, windows
from attnctl.model.attention import depth_of, with_heads
from attnctl.model.class_patterns import assumed_types
from attnctl.model.groups import in_order
from attnctl.model.keys import Keys, Value
from attnctl.model.layer_names import names_in_file
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup, State
from attnctl.model.traits import PLAIN


def inkling(config: Config) -> tuple[LayerGroup, ...]:
    """Inkling: local layers with heads of their own; K, V and both block outputs are convolved."""
    text = config.text
    whole = decoder.plain_layer(text, PLAIN)
    local = with_heads(
        whole,
        text.count_or_default("swa_num_attention_heads"),
        text.count_or_default("swa_num_key_value_heads"),
        text.count_or_default("swa_head_dim"),
    )
    kernel = states.need(text, "convolution width", "conv_kernel_size", "sconv_kernel_size")
    hidden = states.need(text, "width", "hidden_size")
    near, far = near_and_far(text)
    groups = []
    for layers, layer in ((near, local), (far, whole)):
        if layers:
            group = windows.slid(layer, window_of(text), text) if layer is local else layer
            groups += [
                msgspec.structs.replace(biased(text, group), layers=layers),
                four_convolutions(layer, kernel, hidden, layers),
            ]
    return in_order(groups)


def near_and_far(text: Keys) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids of the layers with a window, and of those without."""
    depth = depth_of(text).value
    names = names_in_file(text, depth)
    assumed = names or assumed_types(text, depth)
    kinds = assumed.value if assumed else ["hybrid"] * depth
    near = tuple(i for i, name in enumerate(kinds) if name.endswith("sliding"))
    return near, tuple(i for i in range(depth) if i not in near)


def window_of(text: Keys) -> Value[int]:
    return states.need(text, "window for its local layers", "sliding_window_size")


def biased(text: Keys, group: LayerGroup) -> LayerGroup:
    """Scores get a learned bias up to a distance: the window's, or `rel_extent`."""
    reach = text.count_or_default("rel_extent") if group.kind == "full" else None
    extent = reach.value if reach else group.window
    notes = {"score_bias": f"relative positions up to {extent}", "scale": "1 / head size"}
    return msgspec.structs.replace(group, notes=group.notes | notes)


def four_convolutions(
    layer: LayerGroup, kernel: Value[int], hidden: Value[int], layers: tuple[int, ...]
) -> LayerGroup:
    """States of the convolutions over K, V and both blocks' outputs. conv_state [C, W - 1]."""
    keys_and_values = 2 * (layer.num_kv_heads or 0) * (layer.head_size or 0)
    channels = keys_and_values + 2 * hidden.value
    return LayerGroup(
        kind="short_conv",
        layers=layers,
        state=State(
            type="short_conv",
            conv_state=(channels, kernel.value - 1),
            conv_kernel=kernel.value,
        ),
        notes={"convolutions": 4},
        sources={"conv_kernel": kernel.source, "conv_state": hidden.source},
    )


def zaya(config: Config) -> tuple[LayerGroup, ...]:
    """ZAYA: Q and K pass two convolutions, and half of V is that of the token before."""
    text = config.text
    layer = decoder.plain_layer(text, PLAIN)
    near, far = near_and_far(text)
    attention = [msgspec.structs.replace(layer, layers=far)]
    if near:
        local = windows.slid(layer, windows.window_or_default(text), text)
        attention.append(msgspec.structs.replace(local, layers=near))
    first = states.need(text, "first convolution width", "cca_time0")
    second = states.need(text, "second convolution width", "cca_time1")
    size = layer.head_size or 0
    kv_heads = layer.num_kv_heads or 0
    convolved = LayerGroup(
        kind="short_conv",
        layers=tuple(sorted((*near, *far))),
        state=State(
            type="short_conv",
            conv_state=(((layer.num_heads or 0) + kv_heads) * size, first.value + second.value - 2),
            conv_kernel=first.value + second.value - 1,
        ),
        notes={"delayed_value": kv_heads * size // 2},
        sources={"conv_kernel": f"{first.source} + {second.source}"},
    )
    return in_order((*attention, convolved))


def reference_window(config: Config) -> tuple[LayerGroup, ...]:
    """Unlimited-OCR: every token sees the whole prompt, and a window of what was generated."""
    text = config.text
    depth = depth_of(text)
    window = windows.window_or_default(text)
    layer = decoder.plain_layer(text, PLAIN)
    notes = {"sees": "the prompt" + (f" and the last {window.value} tokens" if window else "")}
    return (
        msgspec.structs.replace(layer, layers=tuple(range(depth.value)), notes=layer.notes | notes),
    )
