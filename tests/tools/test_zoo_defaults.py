"""What is taken over from a default config into the table of class defaults."""

from __future__ import annotations

from tools.zoo_defaults import additions, period, sizes

LOCAL, FULL = "sliding_attention", "full_attention"


def test_a_periodic_pattern_is_kept_as_one_period() -> None:
    """The last period may be cut short."""
    assert period([LOCAL, LOCAL, FULL, LOCAL, LOCAL, FULL, LOCAL]) == [LOCAL, LOCAL, FULL]


def test_a_pattern_that_does_not_repeat_is_kept_whole() -> None:
    """Seen once is not a period."""
    assert period([LOCAL, FULL, FULL]) == [LOCAL, FULL, FULL]


def test_a_plain_pattern_and_nulls_say_nothing() -> None:
    """Only what differs from the plain decoder is worth a place."""
    config = {"layer_types": [FULL, FULL], "sliding_window": None, "local_attention": 128}
    assert additions(config) == {"local_attention": 128}


def test_sizes_that_the_class_computes_are_left_out() -> None:
    """A computed head_dim or KV count would be wrong for a file that states other sizes."""
    config = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "num_hidden_layers": 2,
    }
    assert sizes(config) == {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    assert sizes(config | {"head_dim": 32})["head_dim"] == 32
