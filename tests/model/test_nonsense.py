"""Values that make no sense are named as the file has them, and nothing of them is made up."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from tests.model.configs import by_kind, decoder, only, read


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"layer_types": "full_attention"}, 'layer_types is "full_attention"; a list'),
        ({"layers_block_type": "mamba"}, 'layers_block_type is "mamba"; a list'),
        ({"hybrid_override_pattern": "M*XM--"}, 'hybrid_override_pattern is "M*XM--"'),
        ({"sliding_window": 8, "sliding_window_pattern": "local"},
         'sliding_window_pattern is "local"'),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; 1 or more"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0; 1 or more"),
        ({"max_position_embeddings": "131072"}, 'max_position_embeddings is "131072"; a whole'),
        ({"max_position_embeddings": -5}, "max_position_embeddings is -5"),
        ({"max_position_embeddings": 2.5}, "max_position_embeddings is 2.5"),
        ({"max_position_embeddings": True}, "max_position_embeddings is true"),
        ({"max_position_embeddings": [4096]}, "max_position_embeddings is a list"),
        ({"sliding_window": [64, 32, 0, 0, 0, 0]}, "one width for all of its sliding layers"),
        ({"sliding_window": [64] * 4}, "one entry for each of 6 layers"),
        ({"sliding_window": ["64"] * 6}, 'sliding_window[0] is "64"'),
    ],
)  # fmt: skip
def test_the_sentence_shows_the_value_of_the_file(keys: dict[str, Any], says: str) -> None:
    """A word is shown whole, never a letter of it; a zero is not called absent."""
    with pytest.raises(InputError) as error:
        read(decoder("mistral", **keys))
    assert says in str(error.value)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4,
         "num_hidden_layers": 0},
        {"model_type": "whisper", "d_model": 64, "encoder_layers": 2, "decoder_layers": 0,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4},
    ],
)  # fmt: skip
def test_encoders_and_pairs_of_no_layers_are_refused_alike(config: dict[str, Any]) -> None:
    """Neither is said to state no depth, nor given that of the other stack."""
    with pytest.raises(InputError, match=r"layers is 0; 1 or more"):
        read(config)


def test_a_window_listed_for_every_layer_holds_where_it_is_listed() -> None:
    """Null, 0 and -1 stand for full attention in such a list too."""
    every = only(decoder("mistral", sliding_window=[64] * 6))
    assert (every.kind, every.window, every.sources["window"]) == ("sliding", 64, "sliding_window")
    mixed = decoder("mistral", sliding_window=[64, None, 64, 0, 64, -1])
    assert by_kind(mixed) == {"sliding": (0, 2, 4), "full": (1, 3, 5)}
    assert only(decoder("mistral", sliding_window=[None] * 6)).kind == "full"


@pytest.mark.parametrize("value", [-1, 10**30, 1e30])
def test_a_length_without_limit_is_said_to_be_one(value: float) -> None:
    """Another key may still give the limit."""
    unlimited = read(decoder(max_position_embeddings=value))
    assert unlimited.max_position is None
    assert any("max_position_embeddings" in note for note in unlimited.notes)
    both = read(decoder(max_position_embeddings=value, seq_length=77))
    assert both.max_position == 77


@pytest.mark.parametrize("value", [None, 0])
def test_null_and_zero_state_no_length(value: int | None) -> None:
    """Without a note: that is how files leave it open."""
    spec = read(decoder(max_position_embeddings=value))
    assert (spec.max_position, spec.notes) == (None, ())
