"""Parameters of attention that mean nothing are refused when they are put together."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from attnctl.exits import InputError
from attnctl.ops.mla import Latent
from attnctl.ops.paged import Paged

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scale": NAN}, "scale must be a finite number; it is nan"),
        ({"scale": None}, "scale must be a finite number"),
        ({"scale": torch.tensor(0.5)}, r"scale must be a finite number; it is a tensor \[\]"),
        ({"window": -1}, "window must be None where there is none, else an integer from 0"),
        ({"window": 2.5}, "window must be None"),
        ({"window_right": -1}, "window_right must be None"),
        ({"window": 0, "causal": False}, "window must be 1 or more where causal is False"),
        ({"chunk": 0}, "chunk must be None where there is none, else an integer from 1"),
        ({"softcap": -1.0}, "softcap must be None or 0"),
        ({"softcap": NAN}, "softcap must be a finite number"),
        ({"softcap": INF}, "softcap must be a finite number"),
        ({"softcap": 1e-300}, "softcap must be None or 0 where there is none, else 1e-30 to 1e"),
        ({"k_scale": 0.0}, "k_scale must not be 0"),
        ({"v_scale": NAN}, "v_scale must be a finite number"),
        ({"sinks": [1.0, 2.0]}, r"sinks must be a tensor \[H\]"),
        ({"sinks": torch.ones(1, 4)}, r"sinks must be a tensor \[H\].*\[1, 4\]"),
        ({"alibi_slopes": torch.ones(2, 2)}, r"alibi_slopes must be a tensor \[H\]"),
        ({"prefix_ranges": torch.zeros(2, 2)}, r"prefix_ranges must be a tensor \[B, M, 2\]"),
        ({"prefix_ranges": torch.zeros(2, 1, 2)}, "prefix_ranges must hold integers"),
    ],
)
def test_a_value_that_makes_no_attention_is_refused(given: dict[str, Any], sentence: str) -> None:
    """Named, with what would do; a changed copy is asked as a new one is."""
    with pytest.raises(InputError, match=f"^Paged: {sentence}"):
        Paged(**({"scale": 1.0} | given))
    with pytest.raises(InputError, match=f"^Paged: {sentence}"):
        replace(Paged(scale=1.0), **given)


def test_values_are_settled() -> None:
    """A softcap of 0 is none, whole numbers do for others, and no window is too long."""
    params = Paged(scale=1, softcap=0.0, window=2**70, k_scale=2)
    assert (params.scale, type(params.scale)) == (1.0, float)
    assert params.softcap is None
    assert params.window == 2**40
    assert type(params.k_scale) is float


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scale": NAN}, "scale must be a finite number"),
        ({"scale": "1"}, "scale must be a finite number"),
        ({"kv_scale": 0.0}, "kv_scale must not be 0"),
        ({"kv_scale": INF}, "kv_scale must be a finite number"),
    ],
)
def test_latent_attention_asks_its_numbers_too(given: dict[str, Any], sentence: str) -> None:
    """Its scale and that of its cache."""
    with pytest.raises(InputError, match=f"^Latent: {sentence}"):
        Latent(**({"scale": 1.0, "kv_lora_rank": 64} | given))
