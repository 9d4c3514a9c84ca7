"""Kept launches as Hopper would get them, on tensors without memory: arguments and what is held."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.binary_call import Calls
from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.paged import paged_attention
from attnctl.kernels.triton.paged.call import prepare
from attnctl.kernels.triton.paged.launches import launches
from attnctl.kernels.triton.paged.plan import knobs_for
from attnctl.kernels.triton.paged.prefill_call import paged_launch
from attnctl.kernels.triton.ready_launch import ready_of
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.ops.paged import Paged
from tests.kernels.triton.kept import Binary, Kept, same

HOPPER = Device("sm_90", 132, 232448)


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def inputs(queries: int, width: int = 128) -> dict[str, Tensor]:
    """Two sequences of `queries` tokens, 32 query heads over 8, pages of 16."""
    return {
        "query": tensor(2 * queries, 32, width),
        "key_cache": tensor(512, 16, 8, width),
        "value_cache": tensor(512, 16, 8, 128),
        "out": tensor(2 * queries, 32, 128),
        "block_table": tensor(2, 256, dtype=torch.int32),
        "query_start_loc": tensor(3, dtype=torch.int32),
        "seq_lens": tensor(2, dtype=torch.int32),
    }


@pytest.mark.parametrize("queries", [512, 256, 1])
@pytest.mark.parametrize("width", [128, 192])
@pytest.mark.parametrize("masks", [{}, {"window": 100, "sinks": True}], ids=str)
def test_every_argument_of_a_kept_launch_is_that_of_a_new_one(
    queries: int, width: int, masks: dict[str, Any]
) -> None:
    """Hopper's kernel with its boxes, the portable one, decode in segments with the reduce pass."""
    kept, longest = Kept(interpreted=False), {"max_query_len": queries, "max_seq_len": 4096}
    with standing_on(HOPPER):
        for _ in range(2):
            given = inputs(queries, width)
            more = {**masks, "sinks": tensor(32, dtype=torch.float32)} if masks else {}
            params = Paged(scale=0.1, **more)
            paged_attention(**given, params=params, **longest, kept=kept)
        names = ("query", "key_cache", "value_cache", "seq_lens")
        ready = prepare(*(given[name] for name in names), **longest, knobs=knobs_for("sm_90"))
        order = ("query", "key_cache", "value_cache", "out", "block_table", "query_start_loc")
        tensors = (*(given[name] for name in order), given["seq_lens"])
        wanted = launches(tensors, params, *ready)
    assert len(kept.again) == len(kept.made) == len(wanted)
    held = {id(one) for one in (*tensors, *more.values())}
    for launch, (grid, values, _) in zip(wanted, kept.again, strict=True):
        assert grid == (*launch.grid, 1, 1)[:3]
        named = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False))
        named |= launch.constants
        for name, value in zip(launch.kernel.arg_names, values, strict=True):
            same(value, named[name], held)


def test_hopper_prefill_gets_its_streams_counters_and_a_captured_one_its_own() -> None:
    """Kernels of one stream follow one another; a graph may be replayed beside them."""
    kept = Kept(interpreted=False)
    given, longest = inputs(512), {"max_query_len": 512, "max_seq_len": 4096}
    counters = []
    with standing_on(HOPPER):
        for stream in (None, 7, 7, 8, 7, None):
            kept.current = stream
            paged_attention(**given, params=Paged(scale=0.1), **longest, kept=kept)
            (launch,) = kept.made
            at = launch.kernel.arg_names.index("COUNTS")
            values = kept.again[-1][1] if kept.again else launch.arguments
            counters.append(values[at])
    first, seven, also_seven, eight, seven_again, last = counters
    assert seven is also_seven is seven_again
    assert len({id(one) for one in (first, seven, eight, last)}) == 4
    assert all((one.shape, one.dtype) == ((2,), torch.int32) for one in counters)


def test_no_tensor_is_held_by_what_is_kept() -> None:
    """A query's memory is free again after the call, descriptors or not."""
    kept = Kept(interpreted=False)
    with standing_on(HOPPER):
        given, longest = inputs(512), {"max_query_len": 512, "max_seq_len": 4096}
        paged_attention(**given, params=Paged(scale=0.1), **longest, kept=kept)
    alive = [weakref.ref(one) for one in given.values()]
    kept.made.clear()
    for known in kept._known.values():
        for one in known.launches:
            one.call.binary.launch = None
    del given
    gc.collect()
    assert [one() for one in alive] == [None] * 7
    assert len(kept._known) == 1


def test_steps_of_a_decoding_batch_share_launches_while_their_plan_is_one() -> None:
    """Exact bounds, a token more at each step: new launches only where the segments change."""
    kept, plans, shared = Kept(interpreted=False), set(), 0
    with standing_on(HOPPER):
        for longest in (*range(100, 400, 4), *range(100, 400, 4)):
            given, bounds = inputs(1), {"max_query_len": 1, "max_seq_len": longest}
            before = len(kept.again)
            paged_attention(**given, params=Paged(scale=0.1), **bounds, kept=kept)
            names = ("query", "key_cache", "value_cache", "seq_lens")
            chosen = prepare(*(given[name] for name in names), **bounds).plan
            again = kept.again[before:]
            assert bool(again) is (chosen in plans)
            plans.add(chosen)
            if again:
                shared += 1
                assert len(again) == 1 + (chosen.segments > 1)
                assert again[0][0] == (2, 8, chosen.segments)
    assert 1 < len(plans) < 10
    assert shared == 150 - len(plans)


def test_a_prompts_longest_context_is_of_its_form() -> None:
    """How many heads run side by side follows from it."""
    kept, given = Kept(interpreted=False), inputs(512)
    with standing_on(HOPPER):
        for longest in (4096, 2**20, 4096):
            bounds = {"max_query_len": 512, "max_seq_len": longest}
            paged_attention(**given, params=Paged(scale=0.1), **bounds, kept=kept)
    assert (len(kept.made), len(kept.again)) == (2, 1)


def test_launches_whose_tensors_cannot_be_told_apart_are_not_kept() -> None:
    """One tensor as keys and values, a tensor that is none of the call's, and no binary."""
    given = list(inputs(512).values())
    launch = paged_launch(tuple(given), 0.1, 1.0, True, (512, 512), HOPPER)
    assert launch is not None
    binary = Binary(launch, [], False)
    at = launch.kernel.arg_names.index("COUNTS")
    whole = (*given, launch.arguments[at])
    call = Calls().of
    assert ready_of(launch, binary, whole, call) is not None
    assert ready_of(launch, binary, tuple(given), call) is None
    assert ready_of(launch, binary, (*whole, given[0]), call) is None
    assert ready_of(launch, None, whole, call) is None


def test_a_kept_launch_takes_a_fraction_of_the_operations() -> None:
    """Calls of functions, Python's and others: a first prefill makes hundreds."""
    kept = Kept(interpreted=False)
    given, longest = inputs(512), {"max_query_len": 512, "max_seq_len": 4096}
    params = Paged(scale=0.1)
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    def calls() -> int:
        nonlocal counted
        counted = 0
        sys.setprofile(count)
        paged_attention(**given, params=params, **longest, kept=kept)
        sys.setprofile(None)
        return counted

    with standing_on(HOPPER):
        calls()
        kept._known.clear()
        first, again = calls(), calls()
    assert first > 250
    assert again < 100
