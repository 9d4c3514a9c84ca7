"""Launches that are kept by form: which calls share one, and what each launch gets."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton import Knobs, paged_attention
from attnctl.kernels.triton.call import launches, prepare
from attnctl.kernels.triton.launch import Device, knobs_for
from attnctl.kernels.triton.prefill_call import paged_launch
from attnctl.kernels.triton.relaunch import Relaunches, form_of, ready_of
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged

from .batches import SMALL, Batch
from .kept import Binary, Kept, same

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


@pytest.mark.parametrize("queries", [(20, 18), (1, 1)], ids=["prefill", "decode"])
@pytest.mark.parametrize("masks", [{}, {"window": 9, "sinks": True}], ids=str)
def test_a_kept_launch_computes_what_its_own_tensors_say(
    queries: tuple[int, ...], masks: dict[str, Any]
) -> None:
    """Other queries, caches at another address, another table, other sinks; no new launch."""
    kept = Kept()
    for seed in range(3):
        batch = Batch(queries, (40, 33), seed=seed)
        given = {**masks, "sinks": torch.linspace(-3, seed, batch.heads)} if masks else {}
        params = batch.params(**given)
        found = attend(batch, params, kept)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-5, rtol=1e-5)
        # what lies in the tensors is read anew too
        batch.lengths[1] = 31
        batch.table[0] = batch.table[0].flip(0)
        batch.table[0] = torch.where(batch.table[0] > 5, 0, batch.table[0])
        batch.keys.nan_to_num_()
        batch.values.nan_to_num_()
        found = attend(batch, params, kept)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-5, rtol=1e-5)
    once = len(kept.made)
    assert once == (1 if len(queries) == 2 and queries[0] == 20 else 2)
    assert len(kept.again) == 5 * once


def changed(**changes: Any) -> tuple[Batch, Paged, Knobs]:
    """A batch of one form, or what differs from it in one thing."""
    sizes = {key: changes.pop(key) for key in tuple(changes) if key in BATCH}
    knobs = changes.pop("knobs", SMALL)
    batch = Batch(sizes.pop("queries", (20, 18)), sizes.pop("contexts", (40, 33)), **sizes)
    return batch, msgspec.structs.replace(batch.params(), **changes), knobs


BATCH = ("queries", "contexts", "heads", "kv_heads", "width", "page", "dtype", "layout")


@pytest.mark.parametrize(
    "change",
    [
        {"queries": (20, 17)},
        {"queries": (21, 17)},
        {"contexts": (41, 33)},
        {"contexts": (40, 33, 18), "queries": (20, 18, 0)},
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
        {"knobs": msgspec.structs.replace(SMALL, split_queries=32)},
        {"sinks": torch.zeros(4)},
        {"alibi_slopes": torch.zeros(4)},
    ],
    ids=str,
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
    for launch, (grid, values) in zip(wanted, kept.again, strict=True):
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
            one.binary.launch = None
    del given
    gc.collect()
    assert [one() for one in alive] == [None] * 7
    assert len(kept._known) == 1


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
    assert ready_of(launch, binary, whole) is not None
    assert ready_of(launch, binary, tuple(given)) is None
    assert ready_of(launch, binary, (*whole, given[0])) is None
    assert ready_of(launch, None, whole) is None


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
    assert Relaunches().stream(torch.device("cpu")) is None
