"""Layers that read the KV cache of another layer."""

from __future__ import annotations

from typing import Any

from tests.model.configs import decoder, groups

LOCAL_AND_GLOBAL = ["sliding_attention", "sliding_attention", "full_attention"] * 2


def gemma(model_type: str, **changes: Any) -> dict[str, Any]:
    kept = {"layer_types": LOCAL_AND_GLOBAL, "sliding_window": 16, "head_dim": 32}
    return decoder(model_type, **{**kept, **changes})


def test_the_last_layers_read_the_last_owner_of_their_kind() -> None:
    """Four groups: two that write KV and two that read it."""
    found = groups(gemma("gemma3n_text", num_kv_shared_layers=3))
    assert [(g.kind, g.layers, g.kv_shared_from) for g in found] == [
        ("sliding", (0, 1), {}),
        ("full", (2,), {}),
        ("sliding", (3, 4), {3: 1, 4: 1}),
        ("full", (5,), {5: 2}),
    ]
    assert [g.notes.get("kv_shared_from") for g in found] == [None, None, 1, 2]


def test_full_layers_of_gemma_4_are_wider_and_have_fewer_kv_heads() -> None:
    """K and V are one where the file says so."""
    config = gemma("gemma4_text", num_kv_shared_layers=0, global_head_dim=64,
                   num_global_key_value_heads=1, attention_k_eq_v=True)  # fmt: skip
    sliding, full = groups(config)
    assert (sliding.head_size, sliding.num_kv_heads, sliding.notes) == (32, 2, {})
    assert (full.head_size, full.num_kv_heads, full.notes) == (64, 1, {"k_equals_v": True})


def test_global_kv_heads_count_only_where_k_equals_v() -> None:
    """The number is there in small models too, and is not used."""
    config = gemma("gemma4_text", num_kv_shared_layers=0, global_head_dim=64,
                   num_global_key_value_heads=1, attention_k_eq_v=False)  # fmt: skip
    assert [g.num_kv_heads for g in groups(config)] == [2, 2]


def test_the_last_layer_of_gemma_4_is_full_whatever_the_list_says() -> None:
    """The class forces it."""
    config = gemma("gemma4_text", layer_types=["sliding_attention"] * 6, num_kv_shared_layers=0)
    assert [(g.kind, g.layers) for g in groups(config)] == [
        ("sliding", (0, 1, 2, 3, 4)),
        ("full", (5,)),
    ]


def test_a_share_factor_counts_only_where_sharing_is_on() -> None:
    """Hunyuan-dense carries the factor with the switch off."""
    shared = groups(decoder("hunyuan", use_cla=True, cla_share_factor=2))
    alone = groups(decoder("hunyuan", use_cla=False, cla_share_factor=2))
    assert [(g.layers, g.kv_shared_from) for g in shared] == [
        ((0, 2, 4), {}),
        ((1, 3, 5), {1: 0, 3: 2, 5: 4}),
    ]
    assert [g.layers for g in alone] == [tuple(range(6))]


def test_neighbours_of_hymba_share_and_every_layer_keeps_a_state() -> None:
    """Full layers at three places, sliding ones that own or read KV, one state group."""
    config = decoder("hymba", global_attn_idx=[0, 5], kv_reuse_group=[[1, 2], [3, 4]],
                     sliding_window=16, v_head_dim=64, kq_head_dim=-1, mamba_d_conv=4,
                     mamba_d_state=8, mamba_expand=2, mamba_dt_rank=6)  # fmt: skip
    found = groups(config)
    assert [(g.kind, g.layers, g.kv_shared_from) for g in found] == [
        ("full", (0, 5), {}),
        ("sliding", (1, 3), {}),
        ("sliding", (2, 4), {2: 1, 4: 3}),
        ("mamba1", tuple(range(6)), {}),
    ]
    assert (found[0].head_size, found[0].head_size_v) == (32, 64)
