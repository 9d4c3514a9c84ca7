"""Decoders with something beside plain attention in their layers: convolutions, cross-attention."""

from __future__ import annotations

from typing import Any

from attnctl.model import read_model
from attnctl.model.spec import LayerGroup

SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 4,
}


def by_kind(config: dict[str, Any]) -> dict[str, LayerGroup]:
    return {group.kind: group for group in read_model(config).groups}


def test_inkling_convolves_keys_values_and_both_outputs() -> None:
    """Local layers have heads of their own; the state holds four convolutions."""
    config = {
        "model_type": "inkling_text",
        "layer_types": ["hybrid_sliding", "hybrid_sliding", "hybrid_sliding", "hybrid"],
        "conv_kernel_size": 4,
        "sliding_window_size": 32,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 16,
        "rel_extent": 128,
        **SIZES,
    }
    groups = read_model(config).groups
    near = next(g for g in groups if g.kind == "sliding")
    far = next(g for g in groups if g.kind == "full")
    assert (near.layers, near.num_kv_heads, near.window) == ((0, 1, 2), 4, 32)
    assert (far.layers, far.num_kv_heads) == ((3,), 2)
    assert far.notes["score_bias"] == "relative positions up to 128"
    states = {g.layers: g.state.conv_state for g in groups if g.state is not None}
    assert states == {(0, 1, 2): (2 * 4 * 16 + 2 * 64, 3), (3,): (2 * 2 * 16 + 2 * 64, 3)}


def test_zaya_convolves_queries_and_keys_and_delays_half_of_the_values() -> None:
    """The state is as wide as all heads, and holds what two convolutions in a row need."""
    config = {"model_type": "zaya", "cca_time0": 2, "cca_time1": 2, **SIZES}
    groups = by_kind(config)
    state = groups["short_conv"].state
    assert groups["full"].layers == groups["short_conv"].layers == (0, 1, 2, 3)
    assert state is not None
    assert state.conv_state == ((4 + 2) * 16, 2)
    assert groups["short_conv"].notes["delayed_value"] == 16


def test_idefics_crosses_before_every_nth_layer() -> None:
    """The first included; each head has K and V of its own there."""
    config = {"model_type": "idefics", "cross_layer_interval": 2, **SIZES}
    groups = by_kind(config)
    assert groups["full"].layers == (0, 1, 2, 3)
    assert (groups["cross"].layers, groups["cross"].num_kv_heads) == ((0, 2), 4)


def test_evolla_spreads_its_cross_attention_evenly() -> None:
    """So many blocks, each behind the last layer of its share."""
    config = {"model_type": "evolla", "aligner_num_add_layers": 2, **SIZES}
    assert by_kind(config)["cross"].layers == (1, 3)


def test_paligemma_sees_its_prompt_both_ways_and_keeps_a_cache() -> None:
    """The flag of the text model is about the prompt, not about generation."""
    text = {"model_type": "gemma", "use_bidirectional_attention": True, **SIZES}
    (group,) = read_model({"model_type": "paligemma", "text_config": text}).groups
    assert (group.kind, group.prefix_lm, group.needs_kv_cache) == ("full", True, True)


def test_a_file_without_a_pattern_gets_that_of_its_class() -> None:
    """Muse Glimmer: the last of each four layers sees everything, at whatever depth."""
    config = {"model_type": "muse_glimmer_text", "sliding_window": 32, **SIZES}
    groups = by_kind(config | {"num_hidden_layers": 6})
    assert groups["full"].layers == (3,)
    assert groups["sliding"].layers == (0, 1, 2, 4, 5)
    assert groups["full"].sources["kind"] == "default of muse_glimmer_text"


def test_a_pattern_that_does_not_repeat_needs_the_depth_of_its_class() -> None:
    """Neither guessed nor cut for a model of another depth."""
    config = {"model_type": "flint", "sliding_window": 32, **SIZES}
    assert "default of flint" not in by_kind(config)["sliding"].sources["kind"]


def test_layers_with_latents_of_their_own_are_read_apart() -> None:
    """Dots 3: local layers have a wider latent and fewer heads; the sources say where from."""
    own = {"kv_lora_rank": 32, "num_attention_heads": 2, "qk_nope_head_dim": 12}
    config = {
        "model_type": "dots3_note_text",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "index_topk": 8,
        "index_n_heads": 4,
        "index_head_dim": 8,
        "sliding_window": 16,
        "layer_types": ["indexed_attention", "sliding_attention", "sliding_attention"],
        "per_layer_config": {"1": own, "2": own},
    }
    groups = by_kind(config)
    far, near = groups["mla_sparse"], groups["sliding"]
    assert (far.layers, far.head_size, far.num_heads) == ((0,), 20, 4)
    assert (near.layers, near.head_size, near.num_heads) == ((1, 2), 36, 2)
    assert far.indexer is not None
    assert near.indexer is None
    assert near.sources["num_heads"] == "per_layer_config.1.num_attention_heads"
    assert far.sources["num_heads"] == "num_attention_heads"


def test_a_latent_without_positions_is_narrower() -> None:
    """Mistral Large 4: every fourth layer caches the latent alone."""
    config = {
        "model_type": "mistral_large4_text",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 4,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "index_topk": 8,
    }
    found = {g.layers: (g.head_size, g.mla) for g in read_model(config).groups}
    assert {layers: size for layers, (size, _) in found.items()} == {(0, 1, 2): 20, (3,): 16}
    bare = found[(3,)][1]
    assert bare is not None
    assert (bare.qk_rope_head_dim, bare.qk_nope_head_dim) == (0, 12)
    stated = config | {"no_rope_layers": [0, 1, 1, 1]}
    assert {g.layers: g.head_size for g in read_model(stated).groups} == {(0,): 16, (1, 2, 3): 20}


def test_bytes_of_blt_see_patches_at_the_seam_or_in_every_layer() -> None:
    """The last layer of the encoder, the first of the decoder, unless all do."""
    for model_type, seam in (("blt_local_encoder", (3,)), ("blt_local_decoder", (0,))):
        config = {"model_type": model_type, **SIZES}
        assert by_kind(config)["cross"].layers == seam
        everywhere = by_kind(config | {"cross_attn_all_layers": True})
        assert everywhere["cross"].layers == (0, 1, 2, 3)


def test_the_window_of_blt_is_stated_for_all_its_bytes() -> None:
    """The model over patches has none."""
    config = {
        "model_type": "blt",
        "local_attention_window_len": 32,
        "encoder_config": {"model_type": "blt_local_encoder", **SIZES},
        "decoder_config": {"model_type": "blt_local_decoder", **SIZES},
        "global_config": {"model_type": "blt_global_transformer", **SIZES},
    }
    windows = {
        group.notes["part"]: group.window
        for group in read_model(config).groups
        if group.kind != "cross"
    }
    assert windows == {"encoder_config": 32, "decoder_config": 32, "global_config": None}
