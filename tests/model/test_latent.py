"""Latent attention: what makes it, what is cached, and who runs the indexer."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import LATENT, by_kind, decoder, groups, only, read

INDEX = {"index_topk": 128, "index_n_heads": 4, "index_head_dim": 32}


def latent(model_type: str = "deepseek_v3", **changes: Any) -> dict[str, Any]:
    return decoder(model_type, **{**LATENT, **changes})


def test_the_cached_row_is_the_latent_and_the_rope_part_with_one_head() -> None:
    """Neither head_dim nor num_key_value_heads has a say."""
    layer = only(latent(head_dim=7, num_key_value_heads=6))
    assert (layer.kind, layer.head_size, layer.head_size_v) == ("mla", 112, 96)
    assert (layer.num_heads, layer.num_kv_heads) == (6, 1)
    assert layer.notes == {"num_kv_heads_in_config": 6}
    assert layer.mla is not None
    assert (layer.mla.prefill_head_size, layer.mla.prefill_head_size_v) == (56, 24)
    assert layer.sources["head_size"] == "kv_lora_rank + qk_rope_head_dim"


@pytest.mark.parametrize(
    "dead",
    [
        {"use_mla": False},
        {"kv_lora_rank": None, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False},
        {"kv_lora_rank": None},
        {"kv_lora_rank": 0},
    ],
)
def test_keys_of_the_schema_alone_make_no_latent(dead: dict[str, Any]) -> None:
    """A flag or a null rank leaves plain attention with a derived head width."""
    layer = only(latent("deepseek_v2", **dead))
    assert (layer.kind, layer.head_size, layer.mla) == ("full", 32, None)


def test_the_family_without_a_flag_is_known_by_its_keys() -> None:
    """No model_type is needed for a latent, nor for its indexer."""
    config = {**LATENT, "num_attention_heads": 4, "hidden_size": 64, "index_topk": 32}
    spec = read(config)
    assert (spec.groups[0].kind, spec.groups[0].head_size) == ("mla_sparse", 112)
    assert any("64 heads of 128" in note for note in spec.notes)


def test_a_missing_value_width_is_the_hidden_size_over_heads() -> None:
    """MiniCPM3 states three widths of four."""
    config = latent("minicpm3")
    del config["v_head_dim"]
    layer = only(config)
    assert layer.mla is not None
    assert layer.mla.v_head_dim == 32


def test_a_width_that_nothing_gives_is_refused_by_name() -> None:
    """An unknown type must state the parts of its latent."""
    config = latent("unheard_of")
    del config["qk_rope_head_dim"]
    with pytest.raises(InputError, match="give one of qk_rope_head_dim"):
        read(config)


def test_an_indexer_makes_the_attention_sparse() -> None:
    """DeepSeek V3.2 runs it in every layer."""
    layer = only(latent("deepseek_v32", **INDEX))
    assert layer.kind == "mla_sparse"
    assert layer.indexer is not None
    assert (layer.indexer.heads, layer.indexer.head_dim, layer.indexer.topk) == (4, 32, 128)
    assert layer.indexer.layers is None


def test_a_sparse_type_without_index_keys_takes_them_from_its_class() -> None:
    """The type alone says that there is an indexer."""
    layer = only(latent("glm_moe_dsa"))
    assert layer.indexer is not None
    assert (layer.indexer.topk, layer.sources["indexer"]) == (2048, "default of glm_moe_dsa")


@pytest.mark.parametrize(
    ("keys", "running"),
    [
        ({"index_topk_freq": 3}, (0, 1, 4)),
        ({"index_topk_freq": 3, "index_skip_topk_offset": 3}, (0, 1, 2, 5)),
        ({"index_topk_pattern": "FSSFSS"}, (0, 3)),
        ({"indexer_types": ["full", "shared", "full", "shared", "shared", "shared"]}, (0, 2)),
    ],
)
def test_layers_that_reuse_a_selection_are_a_group_of_their_own(
    keys: dict[str, Any], running: tuple[int, ...]
) -> None:
    """They cache a latent and run no indexer."""
    runs, reuses = groups(latent("glm_moe_dsa", **INDEX, **keys))
    assert (runs.layers, runs.kind) == (running, "mla_sparse")
    assert reuses.layers == tuple(i for i in range(6) if i not in running)
    assert reuses.indexer is not None
    assert reuses.indexer.layers == ()


def test_compression_rates_make_three_kinds() -> None:
    """DeepSeek V4 has no rank: one shared row as K and V, sinks and a window everywhere."""
    config = decoder("deepseek_v4", num_key_value_heads=1, head_dim=64, sliding_window=16,
                     kv_lora_rank=None, v_head_dim=None, compress_ratios=[0, 4, 128, 4, 128, 4, 0],
                     **INDEX)  # fmt: skip
    found = groups(config)
    assert by_kind(config) == {"sliding": (0,), "mla_sparse": (1, 3, 5), "mla": (2, 4)}
    assert all(g.sinks and g.window == 16 and g.notes["k_equals_v"] for g in found)
    assert [g.notes["compress_ratio"] for g in found] == [0, 4, 128]
    assert [g.indexer is not None for g in found] == [False, True, False]


def test_two_attentions_in_a_layer_are_two_caches() -> None:
    """LongCat's num_layers is half of what is cached."""
    config = latent("longcat_flash", num_layers=3)
    del config["num_hidden_layers"]
    assert only(config).layers == (0, 1, 2, 3, 4, 5)


def test_layer_lists_that_count_from_one_are_shifted() -> None:
    """Kimi Linear's lists run from 1 to the depth; its head_dim is unused."""
    linear = {"full_attn_layers": [3, 6], "kda_layers": [1, 2, 4, 5], "head_dim": 20,
              "num_heads": 5, "short_conv_kernel_size": 3}  # fmt: skip
    config = latent("kimi_linear", head_dim=9, mla_use_nope=True, linear_attn_config=linear)
    full, kda = groups(config)
    assert (full.kind, full.layers, full.notes["nope_positions"]) == ("mla", (2, 5), True)
    assert (kda.kind, kda.layers) == ("kda", (0, 1, 3, 4))
    assert kda.state is not None
    assert (kda.state.conv_state, kda.state.ssm_state) == ((300, 2), (5, 20, 20))


def test_a_layer_that_neither_list_names_is_refused() -> None:
    """The lists of Kimi Linear must cover every layer."""
    linear = {"full_attn_layers": [3], "kda_layers": [1, 2, 4, 5], "head_dim": 20, "num_heads": 5}
    with pytest.raises(InputError, match="every layer from 1 to 6"):
        read(latent("kimi_linear", linear_attn_config=linear))
