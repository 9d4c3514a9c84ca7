"""Broken configs of encoders and towers are read or refused in one sentence, never a traceback."""

from __future__ import annotations

import copy
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.exits import InputError
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec

STACK = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
TOWER = {"vision_config": {"model_type": "siglip_vision_model", **STACK}}
CONFIGS: list[dict[str, Any]] = [
    {"model_type": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2, **STACK},
    {"model_type": "longformer", "attention_window": [4, 4, 8], **STACK},
    {"model_type": "neomme", "per_layer_config": {"01": {"sliding_window": 4}}, **STACK},
    {"model_type": "t5", "d_model": 64, "d_kv": 16, "num_heads": 4, "num_layers": 2},
    {"model_type": "funnel", "block_sizes": [2, 2], "d_head": 16, "n_head": 4, "d_model": 64},
    {"model_type": "swin", "depths": [2, 2], "num_heads": [2, 4], "embed_dim": 32},
    {"model_type": "levit", "depths": [2], "num_attention_heads": [2], "key_dim": [8]},
    {"model_type": "sam_vision_model", "global_attn_indexes": [1], "window_size": 4, **STACK},
    {"model_type": "superglue", "gnn_layers_types": ["self", "cross"], **STACK},
    {"model_type": "rt_detr", "decoder_layers": 2, "decoder_attention_heads": 4, "d_model": 64},
    {"model_type": "moonshine_streaming_encoder", "sliding_windows": [[4, 1]] * 3, **STACK},
    {
        "model_type": "encoder-decoder",
        "encoder": {"model_type": "bert", **STACK},
        "decoder": {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64},
    },
    {"model_type": "sam", "mask_decoder_config": {"model_type": "sam_mask_decoder"}, **TOWER},
    {"model_type": "llava", "text_config": {"model_type": "llama", **STACK}, **TOWER},
    {"model_type": "inkling_text", "conv_kernel_size": 4, "sliding_window_size": 8, **STACK},
]
VALUES: list[Any] = [
    *(None, True, 0, -1, 1, 7, 10**9, 10**30, 1.5, math.nan, math.inf, "", "four"),
    *([], [1], [None], [10**9, 10**9], {}, {"model_type": "bert"}, {"a": 1}),
]


def paths(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The key paths of every value in nested objects."""
    if not isinstance(value, dict):
        return [at]
    below = [path for key, inner in value.items() for path in paths(inner, (*at, key))]
    return [at, *below] if at else below


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """One of the configs with up to three values replaced."""
    config = copy.deepcopy(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        *outer, last = draw(st.sampled_from(paths(config)))
        target = config
        for key in outer:
            target = target[key]
        target[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return config


def reading(config: dict[str, Any]) -> ModelSpec | str:
    """The spec, or the sentence of a refusal."""
    try:
        return read_model(config)
    except InputError as error:
        return str(error)


@settings(max_examples=400, deadline=None)
@given(broken())
def test_a_broken_config_is_read_or_refused_in_one_sentence(config: dict[str, Any]) -> None:
    """Whatever stands in the file, there are groups or there is one line that says why not."""
    found = reading(config)
    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert found.groups
        assert all(group.layers for group in found.groups)
