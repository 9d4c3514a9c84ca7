"""Models of several parts: two configs under one roof, and what crosses between them."""

from __future__ import annotations

import pytest

from attnctl.exits import InputError
from tests.model.configs import groups, in_short


def test_two_configs_under_one_roof_make_an_encoder_decoder() -> None:
    """A ViT in front of a decoder whose own num_hidden_layers is a decoy (as in Donut)."""
    config = {
        "model_type": "vision-encoder-decoder",
        "encoder": {
            "model_type": "vit",
            "hidden_size": 384,
            "num_attention_heads": 6,
            "num_hidden_layers": 12,
        },
        "decoder": {
            "model_type": "mbart",
            "d_model": 1024,
            "decoder_attention_heads": 16,
            "decoder_layers": 4,
            "encoder_layers": 12,
            "num_hidden_layers": 12,
        },
    }
    assert in_short(config) == [
        ("encoder", "encoder_self", 12, 6, 64),
        ("decoder", "full", 4, 16, 64),
        ("decoder", "cross", 4, 16, 64),
    ]
    assert groups(config)[1].sources["num_heads"] == "decoder.decoder_attention_heads"


def test_cross_attention_may_have_heads_of_its_own() -> None:
    """Dia's decoder has 4 KV heads for itself and 16 across."""
    config = {
        "model_type": "dia",
        "encoder_config": {
            "model_type": "dia_encoder",
            "hidden_size": 1024,
            "head_dim": 128,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_hidden_layers": 12,
        },
        "decoder_config": {
            "model_type": "dia_decoder",
            "hidden_size": 2048,
            "head_dim": 128,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "num_hidden_layers": 18,
            "cross_num_attention_heads": 16,
            "cross_num_key_value_heads": 16,
            "cross_head_dim": 128,
        },
    }
    kv_heads = [(g.kind, g.num_kv_heads, len(g.layers)) for g in groups(config)]
    assert kv_heads == [("encoder_self", 16, 12), ("full", 4, 18), ("cross", 16, 18)]


def test_a_detector_shows_its_plain_attention_and_names_what_samples_instead() -> None:
    """Deformable cross-attention is no attention operation here."""
    config = {
        "model_type": "rt_detr",
        "d_model": 256,
        "encoder_hidden_dim": 256,
        "encoder_layers": 1,
        "encoder_attention_heads": 8,
        "decoder_layers": 6,
        "decoder_attention_heads": 8,
    }
    assert in_short(config) == [
        ("encoder", "encoder_self", 1, 8, 32),
        ("decoder", "encoder_self", 6, 8, 32),
    ]
    assert groups(config)[1].notes["deformable"] == ["cross"]


def test_keys_of_twice_the_width_of_values_are_told_apart() -> None:
    """Conditional DETR puts content and position side by side in K."""
    config = {
        "model_type": "conditional_detr",
        "d_model": 256,
        "encoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_layers": 6,
        "decoder_attention_heads": 8,
    }
    cross = groups(config)[-1]
    assert (cross.kind, cross.head_size, cross.head_size_v) == ("cross", 64, 32)


def test_a_model_of_parts_names_the_part_of_each_group() -> None:
    """SAM: an image encoder, and a mask decoder whose cross-attention is half as wide."""
    config = {
        "model_type": "sam",
        "vision_config": {
            "model_type": "sam_vision_model",
            "hidden_size": 768,
            "num_attention_heads": 12,
            "num_hidden_layers": 12,
            "global_attn_indexes": [2, 5, 8, 11],
            "window_size": 14,
        },
        "prompt_encoder_config": {"model_type": "sam_prompt_encoder", "hidden_size": 256},
        "mask_decoder_config": {
            "model_type": "sam_mask_decoder",
            "hidden_size": 256,
            "num_attention_heads": 8,
            "num_hidden_layers": 2,
            "attention_downsample_rate": 2,
        },
    }
    parts = [(g.notes["part"], g.kind, len(g.layers), g.head_size) for g in groups(config)]
    assert parts == [
        ("vision_config", "encoder_self", 8, 64),
        ("vision_config", "encoder_self", 4, 64),
        ("mask_decoder_config", "encoder_self", 2, 32),
        ("mask_decoder_config", "cross", 2, 16),
    ]
    assert groups(config)[0].notes["window_2d"] == 14


def test_a_model_without_attention_is_refused_as_such() -> None:
    """ResNet: a sentence that says why there is nothing to pick."""
    with pytest.raises(InputError, match="resnet has no attention or state layers"):
        groups({"model_type": "resnet", "depths": [3, 4, 6, 3], "hidden_sizes": [1, 2, 4, 8]})


def test_other_mathematics_is_refused_by_name() -> None:
    """Hash-bucket attention is not something that a backend here could be told to do."""
    with pytest.raises(InputError, match="reformer uses attention inside hash buckets"):
        groups({"model_type": "reformer", "num_hidden_layers": 6})


def test_perceivers_latents_look_at_the_input_in_its_own_width() -> None:
    """Unless the config says that the latents' width counts."""
    config = {
        "model_type": "perceiver",
        "d_latents": 1280,
        "d_model": 768,
        "num_blocks": 2,
        "num_self_attends_per_block": 13,
        "num_self_attention_heads": 8,
        "num_cross_attention_heads": 8,
    }
    assert in_short(config) == [(None, "encoder_self", 26, 8, 160), (None, "cross", 2, 8, 96)]
    own = config | {"cross_attention_shape_for_attention": "q"}
    assert in_short(own)[1] == (None, "cross", 2, 8, 160)


def test_seamless_turns_text_into_units_by_a_second_pair() -> None:
    """Version 1 generates the units one by one, version 2 all at once."""
    config = {
        "model_type": "seamless_m4t",
        "hidden_size": 1024,
        "encoder_layers": 24,
        "encoder_attention_heads": 16,
        "decoder_layers": 24,
        "decoder_attention_heads": 16,
        "t2u_encoder_layers": 6,
        "t2u_encoder_attention_heads": 16,
        "t2u_decoder_layers": 6,
        "t2u_decoder_attention_heads": 16,
    }
    for model_type, kinds in (
        ("seamless_m4t", ["encoder_self", "full", "cross"]),
        ("seamless_m4t_v2", ["encoder_self", "encoder_self"]),
    ):
        found = groups(config | {"model_type": model_type})
        assert [g.kind for g in found if g.notes.get("part") == "t2u"] == kinds


def test_a_missing_half_of_a_pair_is_one_clear_sentence() -> None:
    """The sentence names the key that has to be there."""
    with pytest.raises(InputError, match="give one of decoder"):
        groups({"model_type": "encoder-decoder", "encoder": {"model_type": "bert"}})
