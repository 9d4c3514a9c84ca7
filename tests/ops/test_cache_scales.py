"""The scales of an FP8 cache that a checkpoint has, has in part, or has not."""

import math

import pytest

from attnctl.exits import InputError
from attnctl.ops.cache_scales import CacheScales, cache_scales


@pytest.mark.parametrize(
    ("given", "effective"),
    [
        ((0.125, 0.75), (0.125, 0.75)),
        ((0.125, None), (0.125, 0.125)),
        ((0.125, -1.0), (0.125, 0.125)),
        ((None, 0.75), (0.75, 0.75)),
        ((-1.0, 0.75), (0.75, 0.75)),
        ((2, 3), (2.0, 3.0)),
        ((448.0, 1e-4), (448.0, 1e-4)),
    ],
)
def test_a_lone_scale_serves_both(given, effective):
    """-1 is how a serving engine marks a scale that it found nothing for."""
    found = cache_scales(*given)
    assert (found.k, found.v) == effective
    assert bool(found.note) is (given[0] in (None, -1.0) or given[1] in (None, -1.0))


@pytest.mark.parametrize("given", [(), (-1.0, -1.0), (None, -1)])
def test_no_scale_at_all_is_one_and_said(given):
    """1.0 is a guess, and its user hears of it."""
    found = cache_scales(*given)
    assert found == CacheScales(1.0, 1.0, found.note)
    assert "nothing was calibrated" in found.note


@pytest.mark.parametrize("bad", [0.0, -0.0, math.nan, math.inf, -math.inf, True, "0.5"])
@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_what_is_no_scale_is_refused(name, bad):
    """Whichever of the two it is, and beside one that is right."""
    given = {"k_scale": 0.5, "v_scale": 0.5, name: bad}
    with pytest.raises(InputError, match=f"^cache_scales: {name} must "):
        cache_scales(**given)
