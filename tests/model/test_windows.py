"""Sliding and chunked layers: which layers, and when a stated window counts."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import by_kind, decoder, groups, only, read


def test_a_window_without_a_pattern_holds_on_every_layer() -> None:
    """Mistral's reading."""
    layer = only(decoder("mistral", sliding_window=100, max_position_embeddings=500))
    assert (layer.kind, layer.window, layer.sources["window"]) == ("sliding", 100, "sliding_window")


@pytest.mark.parametrize("off", [None, 0, -1])
def test_null_zero_and_minus_one_are_no_window(off: int | None) -> None:
    """Three ways to write that there is none."""
    assert only(decoder("mistral", sliding_window=off)).kind == "full"


def test_a_window_longer_than_any_context_leaves_full_attention() -> None:
    """The number is kept as a note; a window as long as the context still counts as sliding."""
    longer = only(decoder("phi3", sliding_window=501, max_position_embeddings=500))
    equal = only(decoder("phi3", sliding_window=500, max_position_embeddings=500))
    assert (longer.kind, longer.window, longer.notes) == ("full", None, {"declared_window": 501})
    assert (equal.kind, equal.window) == ("sliding", 500)
    assert equal.notes == {"declared_window_never_binds_at_max_position": True}


@pytest.mark.parametrize("gate", [False, None])
def test_a_gated_window_is_off_unless_the_gate_is_open(gate: bool | None) -> None:
    """Qwen states windows that are not in use."""
    config = decoder("qwen2", sliding_window=100, use_sliding_window=gate, max_window_layers=2)
    assert only(config).kind == "full"


def test_an_open_gate_lets_the_upper_layers_slide() -> None:
    """max_window_layers is where sliding starts, not where it ends."""
    config = decoder("qwen2", sliding_window=100, use_sliding_window=True, max_window_layers=4)
    assert by_kind(config) == {"full": (0, 1, 2, 3), "sliding": (4, 5)}


@pytest.mark.parametrize(
    ("model_type", "keys", "full"),
    [
        ("gemma2", {}, (1, 3, 5)),
        ("gemma3_text", {}, (5,)),
        ("gemma3_text", {"sliding_window_pattern": 3}, (2, 5)),
        ("cohere2", {}, (3,)),
        ("exaone4", {"sliding_window_pattern": "LLG"}, (2, 5)),
        ("olmo3", {}, (3,)),
        ("cwm", {}, (0, 4)),
        ("afmoe", {"global_attn_every_n_layers": 2}, (1, 3, 5)),
        ("gpt_oss", {}, (1, 3, 5)),
        ("an_unknown_one", {"sliding_window_pattern": 2}, (1, 3, 5)),
        ("smallthinker", {"sliding_window_layout": [0, 1, 1, 0, 1, 1]}, (0, 3)),
        ("mimo_v2", {"hybrid_layer_pattern": [0, 1, 1, 0, 1, 1]}, (0, 3)),
        ("anything", {"layer_types": ["full_attention", *["sliding_attention"] * 5]}, (0,)),
        ("anything", {"layer_types": ["global", "local", "local", "global", "swa", "sliding"]},
         (0, 3)),
        ("gpt_neo", {"attention_types": [[["global", "local"], 3]], "window_size": 64}, (0, 2, 4)),
    ],
)  # fmt: skip
def test_the_full_layers_of_each_pattern(
    model_type: str, keys: dict[str, Any], full: tuple[int, ...]
) -> None:
    """First or last of each group, by list, mask, letters or period."""
    found = by_kind(decoder(model_type, sliding_window=64, **keys))
    assert found["full"] == full
    assert found["sliding"] == tuple(i for i in range(6) if i not in full)


def test_a_pattern_without_a_window_is_full_attention() -> None:
    """EXAONE 4's small model has the pattern key and no window."""
    assert only(decoder("exaone4", sliding_window=None, sliding_window_pattern=None)).kind == "full"


def test_layers_named_sliding_without_a_window_are_full_with_a_note() -> None:
    """All layers are then alike, so none is marked as the one without positions."""
    spec = read(decoder("exaone4", sliding_window=None, layer_types=["sliding_attention"] * 6))
    assert [(g.kind, g.notes) for g in spec.groups] == [("full", {})]
    assert any("no window for the sliding layers" in note for note in spec.notes)


def test_layer_types_longer_than_the_model_lose_their_tail_with_a_note() -> None:
    """Prediction layers stand behind the decoder's."""
    spec = read(decoder(layer_types=["full_attention"] * 8))
    assert spec.groups[0].layers == tuple(range(6))
    assert any("prediction layers" in note for note in spec.notes)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["full_attention"] * 3, "one entry for each of 6 layers"),
        (["full_attention"] * 5 + ["wobbly"], r"layer_types\[5\] is \"wobbly\""),
        (["full_attention"] * 5 + [7], r"layer_types\[5\] is 7"),
        (7, "layer_types is 7; a list of layer kinds"),
    ],
)
def test_lists_of_kinds_that_make_no_sense_are_refused(value: Any, said: str) -> None:
    """Too short, an unknown name, a number, no list."""
    with pytest.raises(InputError, match=said):
        read(decoder(layer_types=value))


def test_sinks_are_known_by_model_type_or_flags() -> None:
    """gpt-oss has no key for them; MiMo has one per kind of layer."""
    assert all(g.sinks for g in groups(decoder("gpt_oss", sliding_window=64)))
    flags = {"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False}
    mimo = decoder("mimo_v2", sliding_window=64, hybrid_layer_pattern=[0, 1] * 3, **flags)
    assert {g.kind: g.sinks for g in groups(mimo)} == {"full": False, "sliding": True}


def test_keys_and_values_of_different_width_have_two_sizes() -> None:
    """MiMo's sliding layers have heads of their own."""
    config = decoder(
        "mimo_v2", sliding_window=64, hybrid_layer_pattern=[0, 1] * 3, head_dim=48, v_head_dim=32,
        swa_num_key_value_heads=3, swa_head_dim=48, swa_v_head_dim=40,
        attention_chunk_size=64,
    )  # fmt: skip
    full, sliding = groups(config)
    assert (full.head_size, full.head_size_v, full.num_kv_heads) == (48, 32, 2)
    assert (sliding.head_size, sliding.head_size_v, sliding.num_kv_heads) == (48, 40, 3)
    assert sliding.chunk is None


def test_ones_of_llama_4_mean_rope_and_chunks() -> None:
    """no_rope_layers is named after its zeros."""
    text = decoder("llama4_text", no_rope_layers=[1, 1, 0, 1, 1, 0], attention_chunk_size=128)
    found = groups({"model_type": "llama4", "text_config": text})
    assert [(g.kind, g.layers, g.chunk) for g in found] == [
        ("chunked", (0, 1, 3, 4), 128),
        ("full", (2, 5), None),
    ]
    assert found[1].notes == {"nope": True}


def test_one_flag_makes_an_encoder_of_a_decoder() -> None:
    """The window then counts both sides."""
    config = decoder("gemma3_text", sliding_window=64, use_bidirectional_attention=True)
    sliding, full = groups(config)
    assert (sliding.kind, sliding.window, sliding.window_right) == ("encoder_self", 64, 32)
    assert (full.kind, full.window) == ("encoder_self", None)
    assert not full.causal
    assert not full.needs_kv_cache


def test_sliding_layers_may_have_more_heads() -> None:
    """Step 3.7 keeps the heads of its sliding layers in an object of their own."""
    other = {"attention_type": "sliding_attention", "num_attention_heads": 9,
             "num_attention_groups": 3, "head_dim": 40}  # fmt: skip
    text = decoder("step3p5", attention_other_setting=other, sliding_window=64, head_dim=40,
                   layer_types=["full_attention", "sliding_attention"] * 3)  # fmt: skip
    found = groups({"model_type": "step3p7", "text_config": text})
    assert [(g.kind, g.num_heads, g.num_kv_heads) for g in found] == [
        ("full", 6, 2),
        ("sliding", 9, 3),
    ]


def test_block_sparse_layers_have_a_kind_of_their_own() -> None:
    """Phi-3-small is dense on the last layer of each group."""
    config = decoder("phi3small", dense_attention_every_n_layers=3, blocksparse_block_size=16)
    assert by_kind(config) == {"blocksparse": (0, 1, 3, 4), "full": (2, 5)}
    assert groups(config)[0].notes == {"block_size": 16}


def test_minimax_m3_marks_the_layers_of_its_indexer() -> None:
    """Its own files have no layer_types: a dict says where blocks of keys are picked."""
    picked = {"use_sparse_attention": True, "sparse_block_size": 128}
    marked = {**picked, "sparse_attention_freq": [0, 0, 0, 1, 1, 1]}
    config = decoder("minimax_m3_text", num_hidden_layers=6, sparse_attention_config=marked)
    assert by_kind(config) == {"full": (0, 1, 2), "blocksparse": (3, 4, 5)}
    spec = read(config)
    assert spec.notes == ()
    assert [path for path in spec.unknown if "sparse" in path] == []
    marked["use_sparse_attention"] = False
    assert by_kind(config) == {"full": tuple(range(6))}


def test_dual_chunk_attention_is_a_note_on_full_attention() -> None:
    """It changes how queries attend, not what is cached."""
    layer = only(decoder("qwen2", dual_chunk_attention_config={"chunk_size": 64, "local_size": 8}))
    assert (layer.kind, layer.notes) == (
        "full",
        {"dual_chunk": {"chunk_size": 64, "local_size": 8}},
    )
