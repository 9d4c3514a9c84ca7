"""The size of the cache's blocks in a plan: the user's, the profile's, the backend's own."""

from __future__ import annotations

from typing import Any

import pytest

import attnctl
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.plans import LayerPlan
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.pick import Table
from attnctl.profile.values import Entry, Point, Profile, Timing
from tests.commands.running import LLAMA
from tests.profile.factory import machine


def entry(*sizes: int | None, weights: tuple[float, ...] = ()) -> Entry:
    spec = read_model(LLAMA)
    points = tuple(
        Point(
            phase="decode",
            batch=4**place,
            context=1024,
            weight=weight,
            timings=(
                Timing(
                    backend="CPU_ATTN", median_us=9.0, knobs={"block_size": size} if size else {}
                ),
            ),
        )
        for place, (size, weight) in enumerate(
            zip(sizes, weights or (1.0,) * len(sizes), strict=True)
        )
    )
    return Entry(shape=shape_of(layer_of(spec, spec.groups[0], Options())), points=points)


def planned(found: Entry, **options: Any) -> LayerPlan:
    here = machine("zen3")
    profile = Profile(name="p", key=key_of(here, None), entries=(found,))
    return attnctl.plan(LLAMA, here, profile=profile, options=Options(**options))[0]


@pytest.mark.parametrize(
    ("sizes", "weights", "wanted"),
    [
        ((128, 128, 128), (), 128),
        ((None, 128, 128), (), 128),
        ((None, None, 128), (), None),
        ((None, None, 128), (1.0, 1.0, 3.0), 128),
        ((), (), None),
    ],
)
def test_the_size_is_what_most_of_the_weight_asks_for(
    sizes: tuple[int | None, ...], weights: tuple[float, ...], wanted: int | None
) -> None:
    """One cache serves all points, so that they cannot each have their own."""
    assert Table(entry(*sizes, weights=weights), ("CPU_ATTN",)).block_size == wanted


def test_a_plan_lays_the_cache_out_as_the_profile_asks() -> None:
    """New caches have blocks of that size, and every batch's knobs still apply."""
    layer = planned(entry(128, 128))
    assert layer.block_size == 128
    assert layer.new_cache(2).shape[1] == 128
    assert planned(entry(None)).block_size == 32


def test_a_size_that_the_user_names_is_kept() -> None:
    """--block-size, and the option of the library, go before the profile."""
    assert planned(entry(128), block_size=64).block_size == 64


def test_a_size_that_the_backend_does_not_take_is_passed_over() -> None:
    """CPU_ATTN takes multiples of 32: a profile cannot make it take another."""
    assert planned(entry(40)).block_size == 32
