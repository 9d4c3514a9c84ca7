"""Broken configs of encoders and towers are read or refused in one sentence, never a traceback."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from hypothesis import given

from attnctl.exits import InputError
from attnctl.model import read_model
from attnctl.model.spec import ModelSpec
from tests.fuzz.mutation import damaged

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


def reading(data: bytes) -> ModelSpec | str:
    """The spec, or the sentence of a refusal."""
    try:
        return read_model("-", stdin=BytesIO(data))
    except InputError as error:
        return str(error)


@given(data=damaged(CONFIGS))
def test_a_damaged_encoder_is_read_or_refused_in_one_sentence(data: bytes) -> None:
    """Whatever stands in the file, there are groups or there is one line that says why not."""
    found = reading(data)
    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert found.groups
        assert all(group.layers for group in found.groups)
