"""Launches that are kept by form: which calls share one, and what each launch gets."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.binary_call import Calls
from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.paged import Knobs, paged_attention
from attnctl.kernels.triton.paged.cache import write_cache
from attnctl.kernels.triton.paged.call import prepare
from attnctl.kernels.triton.paged.launches import launches
from attnctl.kernels.triton.paged.plan import knobs_for
from attnctl.kernels.triton.paged.prefill_call import paged_launch
from attnctl.kernels.triton.ready_launch import ready_of
from attnctl.kernels.triton.relaunch import Relaunches, form_of
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged
from tests.kernels.triton.batches import SMALL, Batch
from tests.kernels.triton.kept import Binary, Kept, same

FEW = msgspec.structs.replace(SMALL, split_queries=0)
"""Prefill whatever the number of queries, for batches of few."""
HOPPER = Device("sm_90", 132, 232448)


def attend(batch: Batch, params: Paged, kept: Relaunches, knobs: Knobs = SMALL) -> Tensor:
    query = batch.query
    out = query.new_full((*query.shape[:2], batch.value_width), torch.nan)
    longest = {"max_query_len": max(batch.queries), "max_seq_len": max(batch.contexts)}
    tensors = (query, batch.keys, batch.values, batch.table, batch.starts, batch.lengths)
    return paged_attention(*tensors, params, **longest, out=out, knobs=knobs, kept=kept)


def exact(batch: Batch, params: Paged) -> Tensor:
    tensors = (batch.query, batch.keys, batch.values, batch.table, batch.starts, batch.lengths)
    return specification.paged_attention(*tensors, params)


@pytest.mark.parametrize("queries", [(3, 2), (1, 1)], ids=["prefill", "decode"])
@pytest.mark.parametrize("masks", [{}, {"window": 9, "sinks": True}], ids=str)
def test_a_kept_launch_computes_what_its_own_tensors_say(
    queries: tuple[int, ...], masks: dict[str, Any]
) -> None:
    """Other queries, caches at another address, another table, other sinks; no new launch."""
    kept, knobs = Kept(), SMALL if queries == (1, 1) else FEW
    for seed in range(3):
        batch = Batch(queries, (24, 18), seed=seed)
        given = {**masks, "sinks": torch.linspace(-3, seed, batch.heads)} if masks else {}
        params = batch.params(**given)
        found = attend(batch, params, kept, knobs)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-5, rtol=1e-5)
        # what lies in the tensors is read anew too
        batch.lengths[1] = 17
        batch.table[0] = batch.table[0].flip(0)
        batch.table[0] = torch.where(batch.table[0] > 3, 0, batch.table[0])
        batch.keys.nan_to_num_()
        batch.values.nan_to_num_()
        found = attend(batch, params, kept, knobs)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-5, rtol=1e-5)
    once = len(kept.made)
    assert once == (1 if knobs is FEW else 2)
    assert len(kept.again) == 5 * once


def changed(**changes: Any) -> tuple[Batch, Paged, Knobs]:
    """A batch of one form, or what differs from it in one thing."""
    sizes = {key: changes.pop(key) for key in tuple(changes) if key in BATCH}
    knobs = changes.pop("knobs", FEW)
    batch = Batch(sizes.pop("queries", (3, 2)), sizes.pop("contexts", (18, 9)), **sizes)
    return batch, msgspec.structs.replace(batch.params(), **changes), knobs


BATCH = ("queries", "contexts", "heads", "kv_heads", "width", "page", "dtype", "layout")


@pytest.mark.parametrize(
    "change",
    [
        {"queries": (3, 1)},
        {"queries": (4, 1)},
        {"contexts": (19, 9)},
        {"contexts": (18, 9, 3), "queries": (3, 2, 0)},
        {"heads": 2},
        {"kv_heads": 1},
        {"width": 32},
        {"page": 32},
        {"dtype": torch.float16},
        {"layout": "HND"},
        {"window": 9},
        {"softcap": 5.0},
        {"causal": False},
        {"scale": 0.3},
        {"k_scale": 2.0},
        {"v_scale": 2.0},
        {"knobs": msgspec.structs.replace(SMALL, split_queries=16)},
        {"sinks": torch.zeros(4)},
        {"alibi_slopes": torch.zeros(4)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_batch_that_differs_in_what_a_launch_depends_on_is_worked_out(
    change: dict[str, Any],
) -> None:
    """And is right, between two of the form that is kept already."""
    kept = Kept()
    for one in ({}, change, {}):
        batch, params, knobs = changed(**one)
        before = len(kept.made)
        found = attend(batch, params, kept, knobs)
        again = len(kept.made) == before
        assert again is (one == {} and before > 0)
        close = {"atol": 1e-2, "rtol": 1e-2} if batch.dtype is torch.float16 else {}
        wanted = exact(batch, params).to(found.dtype)
        torch.testing.assert_close(found, wanted, **(close or {"atol": 1e-4, "rtol": 1e-4}))


def test_alignment_and_strides_are_of_a_form() -> None:
    """A binary that loads 16 bytes at a time is not handed an address between."""
    whole = torch.zeros(65)
    assert form_of(whole[:64]) == form_of(torch.ones(64))
    assert form_of(whole[1:]) != form_of(whole[:64])
    assert form_of(torch.zeros(8, 8)) != form_of(torch.zeros(8, 9)[:, :8])
    assert form_of(torch.zeros(64).half()) != form_of(torch.zeros(64).bfloat16())
    assert form_of(None) is None


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


def test_forms_are_dropped_when_there_are_too_many() -> None:
    """Three forms where two are kept: the third drops both, and is kept itself."""
    kept = Kept(most=2)
    for scale in (0.1, 0.2, 0.3, 0.3, 0.1):
        batch, params, knobs = changed(scale=scale)
        found = attend(batch, params, kept, knobs)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-4, rtol=1e-4)
    assert (len(kept.made), len(kept.again)) == (4, 1)


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


def test_bidirectional_ranges_are_worked_out_each_time() -> None:
    """Their tensor may have to be copied first, which a kept launch would not do."""
    kept = Kept()
    ranges = torch.tensor([[[2, 6]], [[3, 9]]]).int()
    for _ in range(2):
        batch, params, knobs = changed(prefix_ranges=ranges, window=3)
        found = attend(batch, params, kept, knobs)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-4, rtol=1e-4)
    assert (kept.made, kept.again) == ([], [])


def test_launches_on_the_processor_are_not_kept() -> None:
    """Nor are any on another vendor's device: only NVIDIA's binaries follow from a form."""
    assert Relaunches().place(torch.zeros(1)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_a_kept_cache_write_stores_its_own_tokens_in_its_own_slots(dtype: torch.dtype) -> None:
    """Other tokens, another cache, other slots and scales: what a new launch writes."""
    kept = Kept()
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        key, value = (torch.randn(5, 2, width, generator=generator) for width in (16, 32))
        slots = torch.randperm(48, generator=generator)[:5]
        slots[seed] = -1
        written = []
        for one in (kept, None):
            caches = torch.zeros(3, 16, 2, 16, dtype=dtype), torch.zeros(3, 16, 2, 32, dtype=dtype)
            scales = [torch.zeros(3, 16, 2) for _ in range(2)] if dtype is torch.int8 else [1.0] * 2
            write_cache(key, value, *caches, slots, *scales, one)
            written.append([*caches, *(x for x in scales if isinstance(x, torch.Tensor))])
        for mine, new in zip(*written, strict=True):
            assert torch.equal(mine, new)
            assert mine.any()
    assert (len(kept.made), len(kept.again)) == (1, 2)
    write_cache(key[:4], value[:4], *caches, slots[:4], *scales, kept)
    assert len(kept.made) == 2


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
