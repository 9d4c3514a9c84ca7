"""Launches that are kept by form: which calls share one, and that each computes its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.paged import Knobs, paged_attention
from attnctl.kernels.triton.paged.cache import write_cache
from attnctl.kernels.triton.relaunch import Relaunches, form_of
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged
from tests.kernels.triton.batches import SMALL, Batch
from tests.kernels.triton.kept import Kept

FEW = msgspec.structs.replace(SMALL, split_queries=0)
"""Prefill whatever the number of queries, for batches of few."""


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


def test_forms_are_dropped_when_there_are_too_many() -> None:
    """Three forms where two are kept: the third drops both, and is kept itself."""
    kept = Kept(most=2)
    for scale in (0.1, 0.2, 0.3, 0.3, 0.1):
        batch, params, knobs = changed(scale=scale)
        found = attend(batch, params, kept, knobs)
        torch.testing.assert_close(found.double(), exact(batch, params), atol=1e-4, rtol=1e-4)
    assert (len(kept.made), len(kept.again)) == (4, 1)


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
