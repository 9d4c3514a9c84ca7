"""Field reports about kernels whose answers are numbers that a loader works out."""

from __future__ import annotations

import math

import pytest

from attnctl.exits import InputError
from attnctl.ops.cache_scales import cache_scales
from tests.shared_cases.reports import report

GIVEN = {"both": "kv", "k only": "k", "v only (k = -1)": "v", "neither": ""}
BAD = {"0.0": 0.0, "NaN": math.nan}


@pytest.mark.parametrize("at", range(6))
def test_scales_of_a_cache_that_are_there_in_part(at: int) -> None:
    """C10: a lone scale serves both, none is 1.0 and said, 0 and NaN are errors."""
    case = report("C10")
    given, wanted = case["input"], case["expected"]["effective"][at]
    variant = given["variants"][at]
    k, v = given["k_scale"], given["v_scale"]
    if wanted == "error":
        with pytest.raises(InputError):
            cache_scales(BAD[variant], v)
        return
    named = GIVEN[variant]
    found = cache_scales(k if "k" in named else -1, v if "v" in named else None)
    assert [found.k, found.v] == wanted
    assert (variant == "neither") is ("calibrated" in found.note)
