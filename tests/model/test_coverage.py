"""Every key path of a file is used, known to have no bearing, or unknown."""

from __future__ import annotations

from typing import Any

from tests.model.configs import decoder, read


def paths(data: dict[str, Any], path: str = "") -> set[str]:
    found = set()
    for name, value in data.items():
        here = f"{path}.{name}" if path else name
        found.add(here)
        if isinstance(value, dict):
            found |= paths(value, here)
    return found


def test_keys_are_sorted_by_what_became_of_them() -> None:
    """One of each sort, and none lost."""
    config = decoder(vocab_size=9, rope_theta=1.0, blue_cheese=1, max_window_layers=3)
    spec = read(config)
    assert "num_attention_heads" in spec.used
    assert {"vocab_size", "rope_theta"} <= set(spec.ignored)
    assert spec.unknown == ("blue_cheese",)
    assert {*spec.used, *spec.ignored, *spec.unknown} == set(config)


def test_no_path_is_in_two_lists() -> None:
    """Nested files too: an object that nobody opened is one path."""
    config = {
        "model_type": "w",
        "text_config": decoder(rope_scaling={"factor": 2}, odd={"inner": 1}),
        "vision_config": {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1},
        "quantization_config": {"kv_cache_scheme": None, "bits": 4},
    }
    spec = read(config)
    listed = [*spec.used, *spec.ignored, *spec.unknown]
    assert len(listed) == len(set(listed))
    assert set(listed) <= paths(config)
    assert spec.unknown == ("text_config.odd",)
    assert "text_config.rope_scaling" in spec.ignored


def test_a_null_that_was_looked_at_is_used() -> None:
    """It decided that the width is derived."""
    assert "head_dim" in read(decoder(head_dim=None)).used
