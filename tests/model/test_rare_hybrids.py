"""Hybrids whose layer pattern only their own code knows: SambaY, PLaMo, flash-linear-attention."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import LATENT, by_kind, decoder, groups, only, read

SAMBA: dict[str, Any] = {
    "mb_per_layer": 2,
    "mamba_d_state": 4,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "num_hidden_layers": 12,
}
PLAMO2: dict[str, Any] = {
    "mamba_step": 2,
    "mamba_d_state": 4,
    "mamba_d_conv": 4,
    "mamba_num_heads": 5,
    "hidden_size_per_head": 16,
    "attention_window_size": 32,
}


def test_the_second_half_of_a_sambay_reads_one_layers_cache() -> None:
    """Twelve layers: a window on 1, 3, 5, the one cache in 7, gates without a state from 8 on."""
    sliding, own, readers, mamba, gates = groups(decoder("phi4flash", sliding_window=8, **SAMBA))
    assert (sliding.kind, sliding.layers, sliding.window) == ("sliding", (1, 3, 5), 8)
    assert (own.kind, own.layers, own.kv_shared_from) == ("full", (7,), {})
    assert readers.kv_shared_from == {9: 7, 11: 7}
    assert (mamba.kind, mamba.layers) == ("mamba1", (0, 2, 4, 6))
    assert (gates.kind, gates.layers) == ("none", (8, 10))
    assert "differential" in own.notes


def test_a_list_of_windows_says_the_same() -> None:
    """The class writes an entry per layer."""
    listed = [None if i % 2 == 0 or i > 5 else 8 for i in range(12)]
    one = groups(decoder("phi4flash", sliding_window=8, **SAMBA))
    other = groups(decoder("phi4flash", sliding_window=listed, **SAMBA))
    assert [(g.kind, g.layers, g.window) for g in one] == [
        (g.kind, g.layers, g.window) for g in other
    ]


def test_plamo_2_has_attention_in_the_middle_of_each_step() -> None:
    """Heads of state and attention are of one width; B and C go past the convolution."""
    sliding, mamba = groups(decoder("plamo2", **PLAMO2))
    assert (sliding.layers, sliding.window, sliding.head_size) == ((1, 3, 5), 32, 16)
    assert mamba.layers == (0, 2, 4)
    assert mamba.state is not None
    assert (mamba.state.conv_state, mamba.state.ssm_state) == ((80, 3), (5, 16, 4))


def test_plamo_2_may_name_full_layers_and_leave_mamba_out() -> None:
    """full_attention_idx takes the window off; mamba_enabled false leaves attention alone."""
    assert by_kind(decoder("plamo2", **PLAMO2, full_attention_idx=[3])) == {
        "sliding": (1, 5),
        "full": (3,),
        "mamba2": (0, 2, 4),
    }
    plain = decoder("plamo2", **PLAMO2, mamba_enabled=False)
    assert by_kind(plain) == {"sliding": (0, 1, 2, 3, 4, 5)}


@pytest.mark.parametrize("step", [0, 1])
def test_plamo_2_with_no_room_for_mamba_in_a_step_is_refused(step: int) -> None:
    """Only mamba_enabled leaves Mamba out; the model itself takes no such step."""
    with pytest.raises(InputError, match=f"mamba_step is {step}; 2 or more"):
        read(decoder("plamo2", **{**PLAMO2, "mamba_step": step}))


def test_the_first_plamo_shares_kv_among_heads() -> None:
    """Six heads, three to one KV head."""
    config = decoder("plamo", n_shared_head=3)
    config.pop("num_key_value_heads")
    assert (only(config).num_heads, only(config).num_kv_heads) == (6, 2)


def test_the_third_plamo_calls_its_window_window_size() -> None:
    """The last of each pattern is full."""
    assert by_kind(decoder("plamo3", window_size=8, sliding_window_pattern=3)) == {
        "sliding": (0, 1, 3, 4),
        "full": (2, 5),
    }


def test_every_longcat_has_two_caches_in_a_layer() -> None:
    """The n-gram one too."""
    config = decoder("longcat_flash_ngram", **LATENT, num_layers=3)
    config.pop("num_hidden_layers")
    assert only(config).layers == (0, 1, 2, 3, 4, 5)


def test_a_gated_deltanet_is_recurrent_but_for_the_layers_of_attn() -> None:
    """Values twice as wide as keys; the attention layers have heads of their own and a window."""
    config = {
        "model_type": "gated_deltanet",
        "hidden_size": 192,
        "num_hidden_layers": 4,
        "num_heads": 3,
        "head_dim": 16,
        "attn": {"layers": [1, 3], "num_heads": 6, "num_kv_heads": 2, "window_size": 8},
    }
    attention, state = groups(config)
    assert (attention.kind, attention.layers, attention.window) == ("sliding", (1, 3), 8)
    assert (attention.num_heads, attention.num_kv_heads, attention.head_size) == (6, 2, 32)
    assert (state.kind, state.layers, state.is_ssm) == ("gdn", (0, 2), True)
    assert state.state is not None
    assert state.state.ssm_state == (3, 32, 16)
    assert state.state.conv_state == (2 * 48 + 96, 3)


@pytest.mark.parametrize(
    ("model_type", "shape"),
    [("gla", (4, 48, 24)), ("retnet", (4, 96, 48)), ("delta_net", (4, 48, 48))],
)
def test_recurrences_that_nothing_runs_are_no_attention(
    model_type: str, shape: tuple[int, ...]
) -> None:
    """Their heads are those of a matrix state."""
    layer = only({"model_type": model_type, "hidden_size": 192, "num_heads": 4, "num_layers": 2})
    assert (layer.kind, layer.head_size) == ("recurrent_other", None)
    assert layer.state is not None
    assert layer.state.ssm_state == shape


def test_widths_that_do_not_divide_are_named() -> None:
    """With the key that is wrong."""
    config = {"model_type": "gla", "hidden_size": 192, "num_heads": 4, "num_layers": 2,
              "expand_k": 0.01}  # fmt: skip
    with pytest.raises(InputError, match="expand_k"):
        only(config)


def test_a_short_list_of_windows_repeats_down_the_layers() -> None:
    """Mistral's params.json: one full layer in three."""
    assert by_kind(decoder(sliding_window=[None, 8, 8])) == {
        "full": (0, 3),
        "sliding": (1, 2, 4, 5),
    }
    with pytest.raises(InputError, match="one entry for each of 6 layers or of a part"):
        groups(decoder(sliding_window=[None, 8, 8, 8]))


def test_a_speculators_file_keeps_its_layer_below() -> None:
    """The draft model's one layer is described in transformer_layer_config."""
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": decoder()}
    assert only(config).layers == (0, 1, 2, 3, 4, 5)


def test_keys_of_an_unknown_type_say_what_they_say_elsewhere() -> None:
    """Sinks by flag and by kind, V of its own width, attention at an offset among Mamba layers."""
    assert only(decoder("unheard_of", use_sinks=True)).sinks
    types = ["sliding_attention", "full_attention"] * 3
    some = decoder("unheard_of", layer_types=types, sliding_window=8,
                   add_swa_attention_sink_bias=True)  # fmt: skip
    assert [(g.kind, g.sinks) for g in groups(some)] == [("sliding", True), ("full", False)]
    wide = only(decoder("unheard_of", head_dim=48, v_head_dim=32))
    assert (wide.head_size, wide.head_size_v) == (48, 32)
    assert only(decoder("llama", head_dim=48, v_head_dim=32)).head_size_v is None
    mixed = decoder("unheard_of", attn_layer_period=3, attn_layer_offset=1, mamba_d_state=4,
                    mamba_d_conv=4, mamba_expand=2)  # fmt: skip
    assert by_kind(mixed) == {"full": (1, 4), "mamba1": (0, 2, 3, 5)}
