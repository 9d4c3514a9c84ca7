"""Fixed-size states: the shapes, and which layers have one, an attention beside it, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import by_kind, decoder, groups, only, read

MAMBA2: dict[str, Any] = {
    "mamba_n_heads": 12,
    "mamba_d_head": 32,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
GDN: dict[str, Any] = {
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_conv_kernel_dim": 4,
}


def test_a_stated_inner_width_wins_over_the_expansion_factor() -> None:
    """FalconMamba's factor is wrong by a factor of eight."""
    config = {"model_type": "falcon_mamba", "hidden_size": 64, "num_hidden_layers": 2, "expand": 16,
              "intermediate_size": 128, "state_size": 8, "conv_kernel": 4,
              "time_step_rank": 4}  # fmt: skip
    state = only(config).state
    assert state is not None
    assert (state.conv_state, state.ssm_state, state.dt_rank) == ((128, 3), (128, 8), 4)


def test_heads_of_a_pure_state_model_are_no_attention_heads() -> None:
    """Codestral Mamba: num_heads and head_dim describe the state, and there is no KV cache."""
    config = {"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 8,
              "head_dim": 16, "n_groups": 2, "state_size": 4, "conv_kernel": 4, "expand": 2,
              "time_step_limit": [0.0, float("inf")]}  # fmt: skip
    layer = only(config)
    assert (layer.kind, layer.num_heads, layer.head_size) == ("mamba2", None, None)
    assert layer.is_ssm
    assert layer.state is not None
    assert (layer.state.conv_state, layer.state.ssm_state) == ((144, 3), (8, 16, 4))


def test_heads_times_width_win_over_the_expansion_factor() -> None:
    """Nemotron 3's factor contradicts its heads; n_group is about experts."""
    config = decoder("nemotron_h", hybrid_override_pattern="M-*EMM", mamba_num_heads=5,
                     mamba_head_dim=8, ssm_state_size=4, conv_kernel=4, n_groups=1, n_group=7,
                     expand=2, mamba_ssm_cache_dtype="float32", head_dim=48)  # fmt: skip
    assert by_kind(config) == {"full": (2,), "mamba2": (0, 4, 5), "none": (1, 3)}
    full, state, none = groups(config)
    assert (full.head_size, full.notes) == (48, {"nope": True})
    assert state.state is not None
    assert (state.state.inner, state.state.conv_state) == (40, (48, 3))
    assert state.state.ssm_dtype == "float32"
    assert not none.needs_kv_cache


def test_a_period_and_an_offset_place_the_attention() -> None:
    """Jamba; the experts' period beside it plays no part."""
    config = decoder("jamba", attn_layer_period=3, attn_layer_offset=1, expert_layer_period=2,
                     expert_layer_offset=0, mamba_d_state=8, mamba_d_conv=4,
                     mamba_expand=2)  # fmt: skip
    assert by_kind(config) == {"full": (1, 4), "mamba1": (0, 2, 3, 5)}
    state = groups(config)[1].state
    assert state is not None
    assert (state.conv_state, state.ssm_state, state.dt_rank) == ((384, 3), (384, 8), 12)


def test_listed_layers_are_attention_and_the_rest_states() -> None:
    """Bamba."""
    config = decoder("bamba", attn_layer_indices=[1, 4], **MAMBA2)
    assert by_kind(config) == {"full": (1, 4), "mamba2": (0, 2, 3, 5)}
    state = groups(config)[1].state
    assert state is not None
    assert (state.conv_state, state.ssm_state) == ((384 + 2 * 2 * 8, 3), (12, 32, 8))


def test_a_hybrid_type_may_be_no_hybrid() -> None:
    """Granite 4 micro has the keys of states and attention in every layer."""
    layer = only(decoder("granitemoehybrid", layer_types=["attention"] * 6, **MAMBA2))
    assert (layer.kind, layer.layers, layer.notes) == ("full", tuple(range(6)), {})


def test_positions_of_granite_are_named_by_the_file() -> None:
    """position_embedding_type nope leaves attention without positions."""
    kinds = ["mamba", "mamba", "attention"] * 2
    config = decoder(
        "granitemoehybrid", layer_types=kinds, position_embedding_type="nope", **MAMBA2
    )
    assert groups(config)[0].notes == {"nope": True}
    assert by_kind(config) == {"full": (2, 5), "mamba2": (0, 1, 3, 4)}


def test_both_caches_in_every_layer() -> None:
    """Falcon-H1 has attention and a state side by side."""
    config = decoder("falcon_h1", mamba_d_ssm=384, **MAMBA2)
    assert by_kind(config) == {"full": tuple(range(6)), "mamba2": tuple(range(6))}


def test_an_automatic_head_width_is_the_inner_width_over_heads() -> None:
    """mamba_d_head may be the word auto."""
    config = decoder("falcon_h1", mamba_d_ssm=240, **{**MAMBA2, "mamba_d_head": "auto"})
    state = groups(config)[1].state
    assert state is not None
    assert (state.head_dim, state.inner) == (20, 240)


def test_shared_attention_runs_on_twice_the_hidden_width() -> None:
    """Zamba2: neither head_dim nor kv_channels; every layer keeps a state."""
    kinds = ["mamba", "hybrid"] * 3
    config = decoder("zamba2", layers_block_type=kinds, kv_channels=32, num_mem_blocks=2,
                     mamba_headdim=32, state_size=8, conv_dimension=4, expansion_factor=2,
                     mamba_ngroups=1)  # fmt: skip
    full, state = groups(config)
    assert (full.layers, full.head_size) == ((1, 3, 5), 64)
    assert full.notes == {"shared_weight_blocks": 2, "scale_from": 32}
    assert state.layers == tuple(range(6))
    assert state.state is not None
    assert state.state.ssm_state == (12, 32, 8)


def test_the_delta_rule_has_key_and_value_heads_of_its_own() -> None:
    """conv channels are two key widths and one value width; one layer in four is attention."""
    config = decoder("qwen3_next", full_attention_interval=3, mamba_ssm_dtype="float32", **GDN)
    full, state = groups(config)
    assert (full.layers, state.layers, state.kind) == ((2, 5), (0, 1, 3, 4), "gdn")
    assert state.state is not None
    assert (state.state.conv_state, state.state.ssm_state) == ((144, 3), (6, 14, 10))
    assert state.state.ssm_dtype == "float32"


def test_linear_layers_of_an_unknown_type_are_known_by_their_keys() -> None:
    """linear_* makes the delta rule, mamba_* with heads the second kind, neither lightning."""
    kinds = ["linear_attention"] * 5 + ["full_attention"]
    assert groups(decoder("novel", layer_types=kinds, **GDN))[1].kind == "gdn"
    assert groups(decoder("novel", layer_types=kinds, **MAMBA2))[1].kind == "mamba2"
    assert groups(decoder("novel", layer_types=kinds))[1].kind == "linear"


def test_ones_of_minimax_are_softmax_and_zeros_linear() -> None:
    """Linear layers have all query heads in their state."""
    config = decoder("minimax_m1", attn_type_list=[0, 0, 1, 0, 0, 1], head_dim=40)
    full, linear = groups(config)
    assert (full.layers, full.num_kv_heads) == ((2, 5), 2)
    assert (linear.kind, linear.layers) == ("linear", (0, 1, 3, 4))
    assert linear.state is not None
    assert linear.state.ssm_state == (6, 40, 40)
    assert only(decoder("minimax_m2", attn_type_list=[1] * 6)).kind == "full"


def test_the_last_of_each_group_is_attention_and_so_is_the_rest() -> None:
    """Ring: 6 layers in groups of 4 leave two more attention layers at the end."""
    config = decoder("bailing_moe_linear", layer_group_size=4)
    assert by_kind(config) == {"full": (3, 4, 5), "linear": (0, 1, 2)}


def test_short_convolutions_keep_kernel_minus_one_columns() -> None:
    """LFM2."""
    config = decoder("lfm2", full_attn_idxs=[1, 4], conv_L_cache=3)
    full, conv = groups(config)
    assert (full.layers, conv.kind, conv.layers) == ((1, 4), "short_conv", (0, 2, 3, 5))
    assert conv.state is not None
    assert conv.state.conv_state == (192, 2)


def test_gated_recurrence_hides_in_a_key_with_an_underscore() -> None:
    """RecurrentGemma repeats _block_types down the layers and names its window differently."""
    config = decoder("recurrent_gemma", _block_types=["recurrent", "attention"], lru_width=100,
                     attention_window_size=32, conv1d_width=4)  # fmt: skip
    local, state = groups(config)
    assert (local.kind, local.layers, local.window) == ("sliding", (1, 3, 5), 32)
    assert (state.kind, state.layers) == ("recurrent_other", (0, 2, 4))
    assert state.state is not None
    assert (state.state.conv_state, state.state.ssm_state) == ((100, 3), (100,))


def test_rwkv_has_no_attention_whatever_its_keys_are_called() -> None:
    """A matrix per head and two shifted tokens."""
    config = {"model_type": "rwkv5", "hidden_size": 64, "attention_hidden_size": 96,
              "head_size": 16, "num_hidden_layers": 2}  # fmt: skip
    layer = only(config)
    assert (layer.kind, layer.num_heads, layer.needs_kv_cache) == ("recurrent_other", None, False)
    assert layer.state is not None
    assert (layer.state.ssm_state, layer.state.token_shift) == ((6, 16, 16), (2, 64))


def test_files_of_the_original_mamba_package_are_read() -> None:
    """They have no model_type; ssm_cfg describes the layer."""
    first = only({"d_model": 64, "n_layer": 2, "ssm_cfg": {}})
    second = only({"d_model": 64, "n_layer": 2, "ssm_cfg": {"layer": "Mamba2", "headdim": 32}})
    assert first.state is not None
    assert second.state is not None
    assert (first.kind, first.state.ssm_state) == ("mamba1", (128, 16))
    assert (second.kind, second.state.ssm_state) == ("mamba2", (4, 32, 128))


@pytest.mark.parametrize("missing", ["mamba_d_conv", "mamba_d_state"])
def test_a_state_without_a_width_is_refused_by_name(missing: str) -> None:
    """No default is invented for a type that nobody knows."""
    config = decoder("novel", layer_types=["mamba"] * 6, **MAMBA2)
    del config[missing]
    with pytest.raises(InputError, match=missing):
        read(config)
