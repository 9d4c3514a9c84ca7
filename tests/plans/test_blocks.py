"""The size of the cache's blocks in a plan: the user's, the profile's, the backend's own."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import msgspec
import pytest

import attnctl
from attnctl.exits import InputError
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.plans.opening import LayerPlan
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.pick import Table
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.registry import Registry, load
from attnctl.select import select_model
from attnctl.tune.tasks import plan_tasks
from attnctl.tune.workload import Load
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
    layer = planned(entry(256, 256))
    assert layer.block_size == 256
    assert layer.new_cache(2).shape[1] == 256
    assert planned(entry(None)).block_size == 128


def test_a_size_that_the_user_names_is_kept() -> None:
    """--block-size, and the option of the library, go before the profile."""
    assert planned(entry(128), block_size=64).block_size == 64


def test_a_size_that_the_backend_does_not_take_is_passed_over() -> None:
    """CPU_ATTN takes multiples of 32: a profile cannot make it take another."""
    assert planned(entry(40)).block_size == 128


class Narrow:
    """A runtime that lays out the same blocks as CPU_ATTN, and none of more than 128 tokens."""

    def cache_shape(
        self, blocks: int, size: int, kv_heads: int, width: int, width_v: int | None = None
    ) -> tuple[int, ...]:
        if size > 128:
            raise InputError(f"NARROW: block_size must be 128 at most; it is {size}")
        return (blocks, size, kv_heads, width + (width_v or width))


def beside_narrow(found: Entry) -> attnctl.Plan:
    """The plan of a registry in which NARROW is eligible too, after CPU_ATTN."""
    module = ModuleType("narrow.kernel")
    module.RUNTIME = Narrow()
    sys.modules["narrow"], sys.modules["narrow.kernel"] = ModuleType("narrow"), module
    try:
        own = load().get("CPU_ATTN")
        assert own is not None
        narrow = msgspec.structs.replace(own, name="NARROW", module="narrow", ranks=())
        here = machine("zen3")
        profile = Profile(name="p", key=key_of(here, None), entries=(found,))
        return attnctl.plan(LLAMA, here, profile=profile, registry=Registry((own, narrow)))
    finally:
        del sys.modules["narrow"], sys.modules["narrow.kernel"]


def test_a_backend_that_does_not_take_the_profiles_size_is_left_out() -> None:
    """It would be handed a cache that it cannot read; the notes say so."""
    assert beside_narrow(entry(64)).notes == ()
    plan = beside_narrow(entry(256))
    assert plan[0].block_size == 256
    assert plan.notes == (
        "NARROW takes no cache with 256 tokens in a block, which the profile asks for, and is left "
        "out",
    )


def test_a_size_that_the_pick_does_not_take_is_said() -> None:
    """The processor's kernels want multiples of 32; they keep their own, and the plan says so."""
    here = machine("zen3")
    profile = Profile(name="p", key=key_of(here, None), entries=(entry(20),))
    plan = attnctl.plan(LLAMA, here, profile=profile)
    assert plan[0].block_size == 128
    said = (
        "CPU_ATTN takes no cache with 20 tokens in a block, which the profile asks for, and has 128"
    )
    assert said in plan.notes


@pytest.mark.parametrize(
    ("asked", "options", "wanted"),
    [
        (256, {}, 256),
        (256, {"block_size": 64}, 64),
        (256, {"backend": (("*", "CPU_ATTN"),)}, 256),
        (40, {}, 128),
        (None, {}, 128),
    ],
)
def test_a_decision_names_the_size_that_the_plan_has(
    asked: int | None, options: dict[str, Any], wanted: int
) -> None:
    """What a selection says of pages and memory is what the library then lays out."""
    here, spec, found = machine("zen3"), read_model(LLAMA), entry(asked)
    profile = Profile(name="p", key=key_of(here, None), entries=(found,))
    (decision,) = select_model(spec, here, load(), Options(**options), profile=profile)
    assert decision.pick is not None
    assert decision.pick.block_size == wanted == planned(found, **options).block_size


def test_an_encoders_layers_are_called_with_blocks_and_keep_none() -> None:
    """Keys and values come in blocks; the decision plans no cache for them."""
    here = machine("zen3")
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 64,
        "torch_dtype": "float32",
    }
    layer = attnctl.plan(config, here, profile="none")[0]
    assert (layer.decision.pick.block_size, layer.block_size) == (None, 128)
    assert layer.new_cache(3).shape == (3, 128, 4, 32)
    loads = (Load(phase="prefill", batch=1, context=64, query=64),)
    (task,) = plan_tasks(read_model(config), here, load(), Options(), loads).tasks
    assert all(rival.page for rival in task.rivals)
