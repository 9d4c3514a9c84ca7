"""Encoders and encoder-decoders: which stacks there are, how layers see, how wide they are."""

from __future__ import annotations

from tests.model.configs import groups, in_short

BART = {
    "model_type": "bart",
    "d_model": 768,
    "encoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_layers": 4,
    "decoder_attention_heads": 16,
    "is_encoder_decoder": True,
}


def test_each_stack_of_an_encoder_decoder_has_its_own_heads_and_depth() -> None:
    """BART's sizes carry the prefix of their stack."""
    assert in_short(BART) == [
        ("encoder", "encoder_self", 6, 12, 64),
        ("decoder", "full", 4, 16, 48),
        ("decoder", "cross", 4, 16, 48),
    ]


def test_every_size_keeps_the_key_path_it_came_from() -> None:
    """A derived head size names both keys."""
    encoder = groups(BART)[0]
    assert encoder.sources["num_heads"] == "encoder_attention_heads"
    assert encoder.sources["head_size"] == "d_model / encoder_attention_heads"


def test_a_missing_decoder_depth_is_that_of_the_encoder() -> None:
    """T5 files often give num_layers only; d_kv is not d_model over heads."""
    config = {"model_type": "t5", "d_model": 1024, "d_kv": 128, "num_heads": 32, "num_layers": 24}
    assert in_short(config) == [
        ("encoder", "encoder_self", 24, 32, 128),
        ("decoder", "full", 24, 32, 128),
        ("decoder", "cross", 24, 32, 128),
    ]
    assert groups(config)[1].sources["layers"].startswith("num_layers (the decoder's own depth")


def test_an_encoder_used_alone_has_no_decoder() -> None:
    """T5EncoderModel, as image generators use it."""
    config = {
        "architectures": ["T5EncoderModel"],
        "model_type": "t5",
        "d_model": 4096,
        "d_kv": 64,
        "num_heads": 64,
        "num_layers": 24,
    }
    assert in_short(config) == [(None, "encoder_self", 24, 64, 64)]
    assert groups(config)[0].attn_type == "encoder_only"


def test_a_bert_with_alibi_says_so() -> None:
    """Jina's embedding models are BERTs without position embeddings."""
    bert = {
        "model_type": "bert",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 2,
    }
    assert not groups(bert)[0].alibi
    assert groups(bert | {"position_embedding_type": "alibi"})[0].alibi


def test_num_hidden_layers_of_whisper_is_the_encoders() -> None:
    """The decoder's depth has a key of its own."""
    config = {
        "model_type": "whisper",
        "d_model": 1280,
        "encoder_layers": 32,
        "num_hidden_layers": 32,
        "decoder_layers": 4,
        "encoder_attention_heads": 20,
        "decoder_attention_heads": 20,
    }
    assert [short[:3] for short in in_short(config)] == [
        ("encoder", "encoder_self", 32),
        ("decoder", "full", 4),
        ("decoder", "cross", 4),
    ]


def test_an_unknown_type_with_two_stacks_is_an_encoder_decoder() -> None:
    """The prefixes of the keys say so without the help of a table."""
    kinds = [short[:2] for short in in_short(BART | {"model_type": "my_own_model"})]
    assert kinds == [("encoder", "encoder_self"), ("decoder", "full"), ("decoder", "cross")]


def test_local_attention_of_modernbert_is_the_whole_width_of_a_two_sided_window() -> None:
    """128 means 64 tokens to each side; the first of each three layers sees everything."""
    config = {
        "model_type": "modernbert",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_hidden_layers": 7,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
    }
    whole, local = groups(config)
    assert (whole.layers, whole.window) == ((0, 3, 6), None)
    assert (local.layers, local.window, local.window_right) == ((1, 2, 4, 5), 128, 64)
    assert local.sources["window"] == "local_attention"


def test_a_half_width_counts_for_each_side() -> None:
    """UltraBERT's sliding_window reaches that many tokens to the left and to the right."""
    config = {
        "model_type": "ultrabert",
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "sliding_window": 96,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    local = next(group for group in groups(config) if group.window)
    assert (local.window, local.window_right) == (192, 96)


def test_longformer_may_give_each_layer_its_own_window() -> None:
    """attention_window may be one number or a list."""
    config = {
        "model_type": "longformer",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 3,
        "attention_window": [32, 64, 64],
    }
    assert [(g.layers, g.window) for g in groups(config)] == [((0,), 32), ((1, 2), 64)]


def test_layers_with_heads_of_their_own_make_their_own_group() -> None:
    """per_layer_config overrides KV heads, head size and window of single layers."""
    config = {
        "model_type": "neomme",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "num_hidden_layers": 3,
        "sliding_window": 256,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "per_layer_config": {"01": {"sliding_window": 1024}, "02": {"num_key_value_heads": 2}},
    }
    found = {g.layers: (g.window, g.num_kv_heads) for g in groups(config)}
    assert found == {(0,): (512, 4), (1,): (2048, 4), (2,): (None, 2)}


def test_bert_switched_to_a_decoder_is_causal_and_crosses_if_asked() -> None:
    """is_decoder turns the mask; add_cross_attention adds a second attention per layer."""
    bert = {
        "model_type": "bert",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 2,
    }
    assert [g.kind for g in groups(bert)] == ["encoder_self"]
    assert [g.kind for g in groups(bert | {"is_decoder": True})] == ["full"]
    both = bert | {"is_decoder": True, "add_cross_attention": True}
    assert [g.kind for g in groups(both)] == ["full", "cross"]


def test_half_of_convberts_heads_attend() -> None:
    """The others are convolutions; the head size stays that of all heads."""
    config = {
        "model_type": "convbert",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "head_ratio": 2,
    }
    assert in_short(config) == [(None, "encoder_self", 12, 6, 64)]


def test_mobilebert_attends_in_its_bottleneck() -> None:
    """true_hidden_size is the width that the heads share."""
    config = {
        "model_type": "mobilebert",
        "hidden_size": 512,
        "true_hidden_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 24,
    }
    assert in_short(config) == [(None, "encoder_self", 24, 4, 32)]
