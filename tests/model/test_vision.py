"""Vision and audio towers beside a text model, and vision or audio models that stand alone."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.model import read_model
from attnctl.model.spec import Tower

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
}

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "head_dim": 16}


def vision(**extra: Any) -> Tower | None:
    """The vision tower of a text model with these keys beside it."""
    return read_model({"model_type": "llava", "text_config": LLAMA, **extra}).vision


def sizes(tower: Tower | None) -> tuple[int | None, int | None, int | None]:
    assert tower is not None
    return tower.layers, tower.num_heads, tower.head_size


SPELLINGS = {
    "CLIP": {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024},
    "Qwen2-VL": {"depth": 24, "num_heads": 16, "embed_dim": 1024, "hidden_size": 3584},
    "Qwen-VL": {"layers": 24, "heads": 16, "width": 1024},
    "Kimi": {
        "vt_num_hidden_layers": 24,
        "vt_num_attention_heads": 16,
        "vt_hidden_size": 1024,
        "mm_hidden_size": 7168,
    },
    "Molmo": {"image_num_layers": 24, "image_num_heads": 16, "image_head_dim": 64},
    "Whisper": {"encoder_layers": 24, "encoder_attention_heads": 16, "d_model": 1024},
    "stated head size": {"n_layers": 24, "n_heads": 16, "hidden_size": 1, "head_dim": 64},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tower_is_read_in_every_spelling(spelling: str) -> None:
    """Layers, heads and width under the names that families use."""
    assert sizes(vision(vision_config=SPELLINGS[spelling])) == (24, 16, 64)


@pytest.mark.parametrize("key", ["vision_config", "visual", "vision_tower_config", "vit_config"])
def test_a_tower_is_found_under_every_key(key: str) -> None:
    """The path says which one it was."""
    tower = vision(**{key: SPELLINGS["CLIP"]})
    assert sizes(tower) == (24, 16, 64)
    assert tower is not None
    assert tower.path == key


def test_a_tower_by_name_only_gives_the_name() -> None:
    """LLaVA's own files keep no sizes of their tower."""
    tower = vision(mm_vision_tower="openai/clip-vit-large-patch14-336")
    assert tower == Tower(by_name="openai/clip-vit-large-patch14-336", path="mm_vision_tower")


def test_sizes_that_the_file_leaves_open_are_those_of_the_class() -> None:
    """A SigLIP tower with its model type and nothing else."""
    tower = vision(vision_config={"model_type": "siglip_vision_model", "num_hidden_layers": 27})
    assert sizes(tower) == (27, 12, 64)


def test_a_known_name_completes_what_the_file_leaves_open() -> None:
    """DeepSeek-VL2 states layers and width, and the heads by the name of its tower."""
    section = {"layers": 27, "width": 1152, "model_name": "siglip_so400m_patch14_384"}
    spec = read_model({"model_type": "llava", "text_config": LLAMA, "vision_config": section})
    assert sizes(spec.vision) == (27, 16, 72)
    assert any("siglip_so400m_patch14_384" in note for note in spec.notes)


def test_a_tower_may_be_keyed_by_its_name() -> None:
    """DeepSeek-OCR puts sizes under the names of its two towers; the first is the one reported."""
    clip = {"layers": 24, "heads": 16, "width": 1024}
    section = {"width": {"clip-l-14-224": clip, "sam_vit_b": {"layers": 12, "heads": 12}}}
    tower = vision(vision_config=section)
    assert sizes(tower) == (24, 16, 64)
    assert tower is not None
    assert tower.path == "vision_config.width.clip-l-14-224"


def test_a_tower_named_inside_parameters_is_read_by_its_name() -> None:
    """Janus states the name of its tower and no sizes."""
    section = {"cls": "CLIPVisionTower", "params": {"model_name": "siglip_large_patch16_384"}}
    assert sizes(vision(vision_config=section)) == (24, 16, 64)


def test_settings_of_something_else_are_no_tower() -> None:
    """An object under an ambiguous name that states no sizes."""
    assert vision(video_config={"fps": 2}, visual={"prompt": "look"}) is None


def test_an_unknown_timm_tower_is_given_by_its_name() -> None:
    """timm's wrapper states an architecture and no sizes."""
    tower = vision(vision_config={"model_type": "timm_wrapper", "architecture": "fastvit_mci3"})
    assert tower is not None
    assert (tower.by_name, tower.layers) == ("fastvit_mci3", None)


def test_layers_that_follow_the_tower_are_remarked() -> None:
    """Llama 3.2 Vision counts its layers over all tiles apart."""
    section = {
        "model_type": "mllama_vision_model",
        "num_hidden_layers": 32,
        "num_global_layers": 8,
        "attention_heads": 16,
        "hidden_size": 1280,
    }
    spec = read_model({"model_type": "llava", "text_config": LLAMA, "vision_config": section})
    assert sizes(spec.vision) == (32, 16, 80)
    assert any("num_global_layers: 8 layers" in note for note in spec.notes)


def test_an_audio_tower_is_reported_beside_the_vision_tower() -> None:
    """Both under the thinker of an omni model."""
    thinker = {
        "text_config": LLAMA,
        "vision_config": SPELLINGS["CLIP"],
        "audio_config": SPELLINGS["Whisper"],
    }
    spec = read_model({"model_type": "qwen2_5_omni", "thinker_config": thinker})
    assert sizes(spec.vision) == sizes(spec.audio) == (24, 16, 64)
    assert spec.audio is not None
    assert spec.audio.path == "thinker_config.audio_config"


def test_a_tower_that_makes_no_sense_does_not_hide_the_text_model() -> None:
    """The decision about the text model stands; a note tells of the tower."""
    section = {"num_hidden_layers": "many"}
    spec = read_model({"model_type": "llava", "text_config": LLAMA, "vision_config": section})
    assert len(spec.groups) == 1
    assert spec.vision == Tower(path="vision_config")
    assert any("vision_config" in note for note in spec.notes)


def test_a_vision_model_alone_is_an_encoder() -> None:
    """ViT: every patch sees every other."""
    config = {
        "model_type": "vit",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
    }
    (group,) = read_model(config).groups
    assert (group.kind, group.num_heads, group.head_size) == ("encoder_self", 12, 64)
    assert not group.needs_kv_cache


def test_an_unknown_type_about_patches_of_images_is_an_encoder() -> None:
    """An image size and a patch size, and no vocabulary."""
    config = {
        "model_type": "my_own_vit",
        "image_size": 224,
        "patch_size": 16,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
    }
    assert read_model(config).groups[0].kind == "encoder_self"


def test_a_backbone_in_stages_has_a_group_for_each_width() -> None:
    """Swin doubles width and heads from stage to stage; layer ids run on."""
    config = {
        "model_type": "swin",
        "depths": [2, 2, 6, 2],
        "num_heads": [3, 6, 12, 24],
        "embed_dim": 96,
        "window_size": 7,
    }
    groups = read_model(config).groups
    assert [(g.layers[0], len(g.layers), g.num_heads, g.head_size) for g in groups] == [
        (0, 2, 3, 32),
        (2, 2, 6, 32),
        (4, 6, 12, 32),
        (10, 2, 24, 32),
    ]
    assert groups[0].notes == {"window_2d": 7}


def test_values_of_levit_are_wider_than_its_keys() -> None:
    """attention_ratio gives the width of V over that of K."""
    config = {
        "model_type": "levit",
        "depths": [4],
        "num_attention_heads": [4],
        "key_dim": [16],
        "attention_ratio": [2],
        "hidden_sizes": [128],
    }
    (group,) = read_model(config).groups
    assert (group.head_size, group.head_size_v) == (16, 32)


def test_full_layers_between_square_windows_are_a_group_of_their_own() -> None:
    """Qwen2.5-VL names the blocks that see the whole image."""
    config = {
        "model_type": "qwen2_5_vl_vision",
        "depth": 4,
        "num_heads": 16,
        "hidden_size": 1280,
        "fullatt_block_indexes": [1, 3],
        "window_size": 112,
    }
    layers = {"window_2d" in g.notes: g.layers for g in read_model(config).groups}
    assert layers == {True: (0, 2), False: (1, 3)}


def test_a_codec_keeps_a_window_of_what_it_heard_on_both_ways() -> None:
    """Mimi's two transformers are causal, with a cache as long as their window."""
    config = {
        "model_type": "mimi",
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 8,
        "sliding_window": 250,
    }
    groups = read_model(config).groups
    assert [(g.kind, g.window, g.notes["part"]) for g in groups] == [
        ("sliding", 250, "encoder"),
        ("sliding", 250, "decoder"),
    ]
    assert all(group.needs_kv_cache for group in groups)


def test_divided_attention_looks_twice_in_each_layer() -> None:
    """TimeSformer: over time, then over space; a tower of it has as many layers as it states."""
    config = {
        "model_type": "timesformer",
        "attention_type": "divided_space_time",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
    }
    assert [g.notes["over"] for g in read_model(config).groups] == ["space", "time"]
    assert sizes(vision(vision_config=config)) == (12, 12, 64)


def test_a_predictor_is_a_part_of_the_model_and_not_of_the_tower() -> None:
    """V-JEPA 2 has one of its own depth and width."""
    config = {
        "model_type": "vjepa2",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "pred_hidden_size": 384,
        "pred_num_attention_heads": 12,
        "pred_num_hidden_layers": 12,
    }
    assert [(len(g.layers), g.head_size) for g in read_model(config).groups] == [(24, 64), (12, 32)]
    assert sizes(vision(vision_config=config)) == (24, 16, 64)


def test_a_tower_may_stand_inside_the_encoder() -> None:
    """T5Gemma 2."""
    config = {
        "model_type": "t5gemma2",
        "encoder": {
            "model_type": "t5gemma2_encoder",
            "text_config": {"model_type": "t5gemma2_text", **SMALL},
            "vision_config": {"model_type": "siglip_vision_model", **SPELLINGS["CLIP"]},
        },
        "decoder": {"model_type": "t5gemma2_decoder", **SMALL},
    }
    assert sizes(read_model(config).vision) == (24, 16, 64)


def test_windows_that_look_ahead_less_than_back_keep_both_sides() -> None:
    """Moonshine's streaming encoder gives (back, ahead) for each layer."""
    config = {
        "model_type": "moonshine_streaming_encoder",
        "hidden_size": 320,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "sliding_windows": [[16, 4], [16, 0]],
    }
    sides = [(g.window, g.window_right) for g in read_model(config).groups]
    assert sides == [(20, 4), (16, 0)]
