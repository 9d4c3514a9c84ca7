"""Text models inside wrappers, and layers that attend to something else than text."""

from __future__ import annotations

import pytest

from tests.model.configs import decoder, groups, read

INNER = {k: v for k, v in decoder().items() if k != "model_type"}


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config", "llm_cfg"])
def test_the_text_model_is_found_under_each_name(name: str) -> None:
    """Every key path starts with the name."""
    spec = read({"model_type": "wrapper", "hidden_size": 9, name: INNER})
    assert spec.text_config_path == name
    assert spec.groups[0].sources["num_heads"] == f"{name}.num_attention_heads"
    assert spec.groups[0].head_size == 32


def test_two_levels_down_is_found_too() -> None:
    """A talker with a stack of its own beside it is no part of the answer."""
    spec = read(
        {
            "model_type": "omni",
            "thinker_config": {"text_config": {**INNER, "num_attention_heads": 2}},
            "talker_config": {"text_config": {**INNER, "num_attention_heads": 3}},
        }
    )
    assert spec.text_config_path == "thinker_config.text_config"
    assert spec.groups[0].num_heads == 2


def test_a_wrapper_type_may_be_flat() -> None:
    """The first LLaVA files keep the text model at the top."""
    spec = read({**decoder("llava"), "mm_vision_tower": "some/tower"})
    assert (spec.text_config_path, spec.groups[0].head_size) == ("", 32)
    assert spec.vision is not None
    assert spec.vision.by_name == "some/tower"


def test_a_text_model_without_a_type_takes_that_of_its_wrapper() -> None:
    """gemma3 holds a gemma3_text, whose pattern then applies."""
    spec = read({"model_type": "gemma3", "text_config": {**INNER, "sliding_window": 8}})
    assert [g.layers for g in spec.groups] == [(0, 1, 2, 3, 4), (5,)]


def test_a_file_without_a_type_is_known_by_its_architecture() -> None:
    """The longest fitting name wins, and a note says what was done."""
    spec = read({**INNER, "architectures": ["Gemma2ForCausalLM"], "sliding_window": 8})
    assert (spec.model_type, spec.architecture) == ("gemma2", "Gemma2ForCausalLM")
    assert any("is read as gemma2" in note for note in spec.notes)


def test_an_unknown_type_is_read_from_generic_keys_with_a_note() -> None:
    """The note names the type."""
    assert any("'xyz'" in note for note in read(decoder("xyz")).notes)
    assert not read(decoder("llama")).notes


def test_pictures_in_the_prompt_make_a_prefix_that_sees_both_ways() -> None:
    """Only where the type is known for it."""
    text = {**INNER, "sliding_window": 8}
    assert all(g.prefix_lm for g in groups({"model_type": "gemma3", "text_config": text}))
    assert not any(g.prefix_lm for g in groups(decoder("gemma3_text", sliding_window=8)))


def test_layers_that_attend_to_the_picture_are_cross_attention() -> None:
    """Their own list says which, not add_cross_attention."""
    text = {**INNER, "cross_attention_layers": [1, 4], "add_cross_attention": False}
    found = groups({"model_type": "mllama", "text_config": text})
    assert [(g.kind, g.layers) for g in found] == [("full", (0, 2, 3, 5)), ("cross", (1, 4))]


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"model_type": "medusa", "hidden_size": 4096, "num_heads": 5}, 5),
        ({"model_type": "mlp_speculator", "emb_dim": 4096, "n_predict": 3}, 3),
        ({"model_type": "medusa", "hidden_size": 4096}, 1),
    ],
)
def test_heads_that_guess_tokens_hold_no_attention(config: dict[str, object], heads: int) -> None:
    """Their `num_heads` counts guesses; nothing is to be selected for them."""
    (group,) = read(config).groups
    assert (group.kind, group.layers, group.needs_kv_cache) == ("none", tuple(range(heads)), False)
