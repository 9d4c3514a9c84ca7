"""Heads, KV heads and head widths under every name and flag that decides them."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import decoder, groups, only, read


@pytest.mark.parametrize("given", [None, 0, "absent"])
def test_a_head_width_that_is_not_given_is_derived(given: Any) -> None:
    """Absent, null and zero all mean hidden size over heads, and the source says so."""
    config = decoder(head_dim=given)
    if given == "absent":
        del config["head_dim"]
    layer = only(config)
    assert layer.head_size == 32
    assert layer.sources["head_size"] == "hidden_size / num_attention_heads"


def test_a_stated_head_width_wins_even_where_the_hidden_size_does_not_divide() -> None:
    """190 over 6 heads is no whole number, and nobody asks once head_dim is there."""
    layer = only(decoder(hidden_size=190, head_dim=48))
    assert (layer.head_size, layer.sources["head_size"]) == (48, "head_dim")


def test_a_width_that_cannot_be_derived_is_refused_with_both_numbers() -> None:
    """Without head_dim a hidden size must be a multiple of the heads."""
    with pytest.raises(
        InputError, match=r"hidden_size is 190; a multiple of num_attention_heads 6"
    ):
        read(decoder(hidden_size=190))


@pytest.mark.parametrize(
    "name",
    ["num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "kv_n_heads",
     "num_attention_groups"],
)  # fmt: skip
def test_kv_heads_are_found_under_each_spelling(name: str) -> None:
    """The value and its key path come out whatever the key is called."""
    config = decoder("some_new_type")
    del config["num_key_value_heads"]
    layer = only({**config, name: 3})
    assert (layer.num_kv_heads, layer.sources["num_kv_heads"]) == (3, name)


@pytest.mark.parametrize("given", [None, 0])
def test_null_or_zero_kv_heads_mean_as_many_as_query_heads(given: int | None) -> None:
    """The usual default of decoders."""
    assert only(decoder(num_key_value_heads=given)).num_kv_heads == 6


def test_kv_heads_that_do_not_divide_the_heads_are_refused() -> None:
    """Grouped queries need a whole ratio."""
    with pytest.raises(InputError, match=r"num_key_value_heads is 4; a divisor of"):
        read(decoder(num_key_value_heads=4))


def test_names_of_the_older_families_are_read() -> None:
    """n_embd, n_head, n_layer and n_positions serve as well as the long names."""
    spec = read({"model_type": "gpt2", "n_embd": 96, "n_head": 4, "n_layer": 3, "n_positions": 77})
    layer = spec.groups[0]
    assert (layer.head_size, layer.num_heads, layer.num_kv_heads) == (24, 4, 4)
    assert (layer.layers, spec.max_position) == ((0, 1, 2), 77)


def test_one_kv_head_of_falcon_beats_a_count_that_states_otherwise() -> None:
    """multi_query wins over num_kv_heads, which need not even divide the heads."""
    config = decoder("falcon", num_kv_heads=5, multi_query=True, new_decoder_architecture=False)
    del config["num_key_value_heads"]
    spec = read(config)
    assert (spec.groups[0].num_kv_heads, spec.groups[0].sources["num_kv_heads"]) == (
        1,
        "multi_query",
    )
    assert any("num_kv_heads does not count" in note for note in spec.notes)


def test_the_new_architecture_of_falcon_beats_multi_query() -> None:
    """With both flags the stated count is right."""
    config = decoder("falcon", num_kv_heads=3, multi_query=True, new_decoder_architecture=True)
    del config["num_key_value_heads"]
    assert only(config).num_kv_heads == 3


def test_query_groups_of_chatglm_beat_its_multi_query_flag() -> None:
    """multi_query_attention is true and yet there are as many KV heads as groups."""
    config = decoder("chatglm", multi_query_attention=True, multi_query_group_num=3)
    del config["num_key_value_heads"]
    assert only({**config, "kv_channels": 40}).num_kv_heads == 3
    assert only({**config, "kv_channels": 40}).head_size == 40


def test_a_word_may_stand_for_one_kv_head() -> None:
    """SantaCoder has neither a count nor a flag."""
    config = {"model_type": "gpt2", "n_embd": 96, "n_head": 4, "n_layer": 3}
    assert only({**config, "attention_head_type": "multiquery"}).num_kv_heads == 1
    assert only({**config, "attention_head_type": "multihead"}).num_kv_heads == 4


def test_heads_may_differ_from_layer_to_layer() -> None:
    """A list with one entry per layer makes one group of each number."""
    config = decoder("deci", num_key_value_heads_per_layer=[6, 6, 3, 3, 3, 1])
    del config["num_key_value_heads"]
    assert [(g.num_kv_heads, g.layers) for g in groups(config)] == [
        (6, (0, 1)),
        (3, (2, 3, 4)),
        (1, (5,)),
    ]


def test_overrides_per_layer_of_the_new_config_format_are_read() -> None:
    """per_layer_config changes heads and widths of the layers that it names."""
    changed = {"2": {"head_dim": 64, "num_key_value_heads": 1}, "5": {"num_attention_heads": 12}}
    found = groups(decoder(per_layer_config=changed))
    assert [(g.layers, g.head_size, g.num_heads, g.num_kv_heads) for g in found] == [
        ((0, 1, 3, 4), 32, 6, 2),
        ((2,), 64, 6, 1),
        ((5,), 32, 12, 2),
    ]


def test_pruned_blocks_have_their_own_kv_heads_or_none_at_all() -> None:
    """In block_configs a null group size means no attention, and KV heads are heads over it."""
    kept = {"attention": {"n_heads_in_group": 3, "no_op": False, "replace_with_linear": False}}
    wide = {"attention": {"n_heads_in_group": 1, "no_op": False, "replace_with_linear": False}}
    gone = {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}}
    flat = {"attention": {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}}
    config = decoder("nemotron-nas", num_key_value_heads=None)
    found = groups({**config, "block_configs": [kept, gone, wide, flat, kept, kept]})
    assert [(g.kind, g.layers, g.num_kv_heads) for g in found] == [
        ("full", (0, 4, 5), 2),
        ("full", (2,), 6),
        ("none", (1, 3), None),
    ]


@pytest.mark.parametrize(
    ("config", "alibi"),
    [
        (decoder("bloom"), True),
        (decoder("falcon", alibi=True), True),
        (decoder("falcon", alibi=False), False),
        (decoder("baichuan", hidden_size=4096, num_attention_heads=32), False),
        (decoder("baichuan", hidden_size=5120, num_attention_heads=40), True),
        (decoder("jais", position_embedding_type="alibi"), True),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2,
          "attn_config": {"alibi": True}}, True),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2,
          "attn_config": {"alibi": False}}, False),
    ],
)  # fmt: skip
def test_alibi_is_known_by_flag_type_or_size(config: dict[str, Any], alibi: bool) -> None:
    """Some families have no key for it at all."""
    config = {k: v for k, v in config.items() if k != "num_key_value_heads"}
    assert only(config).alibi is alibi


def test_the_soft_cap_of_attention_is_not_that_of_the_logits() -> None:
    """Only attn_logit_softcapping caps attention; zero and null cap nothing."""
    assert only(decoder(attn_logit_softcapping=40.0, final_logit_softcapping=20.0)).softcap == 40.0
    assert only(decoder(attn_logit_softcapping=None, final_logit_softcapping=20.0)).softcap is None


def test_the_class_speaks_where_the_file_is_silent() -> None:
    """A text model without sizes is read as its class would build it, and the source says so."""
    layer = only({"model_type": "llava", "text_config": {"model_type": "llama"}})
    assert (len(layer.layers), layer.num_heads, layer.head_size) == (32, 32, 128)
    assert layer.sources["num_heads"] == "default of llama"


def test_a_depth_that_nobody_states_is_one_layer_with_a_note() -> None:
    """A fragment of a config is still worth an answer."""
    spec = read({"hidden_size": 64, "num_attention_heads": 4})
    assert spec.groups[0].layers == (0,)
    assert any("no number of layers" in note for note in spec.notes)


def test_what_is_missing_is_said_in_one_sentence() -> None:
    """An unknown type without heads is refused by the names that would help."""
    with pytest.raises(InputError) as refused:
        read({"model_type": "brand_new", "hidden_size": 64})
    assert str(refused.value) == (
        "config.json: no number of attention heads for model type 'brand_new'; "
        "give one of num_attention_heads, n_head, n_heads"
    )
