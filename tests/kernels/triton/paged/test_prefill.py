"""The prefill kernel against the specification, with NaN wherever nothing may be read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from attnctl.kernels.triton.paged import Knobs, Tiles
from tests.kernels.triton.batches import SMALL, Batch, assert_right

MIXED = ((17, 1, 0, 3), (20, 1, 0, 40))
"""Prompt, decode, nothing and a chunk; up to 16 queries a sequence would go to decode."""
FEW = msgspec.structs.replace(SMALL, split_queries=0)
"""Prefill whatever the number of queries, for batches of few."""


@pytest.mark.parametrize("page", [8, 16, 24, 64])
def test_lengths_around_a_tile_in_pages_of_any_size(page: int) -> None:
    """0, 1, tile - 1, tile, tile + 1 in one batch; pages below, at, across and above a tile."""
    lengths = (15, 0, 16, 1, 17)
    batch = Batch(lengths, lengths, page=page)
    assert_right(batch, batch.params())


@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"window": 1},
        {"window": 7},
        {"window": 16, "sinks": True},
        {"chunk": 12},
        {"chunk": 24, "window": 9},
        {"causal": False},
        {"causal": False, "window": 5, "window_right": 3},
        {"causal": False, "window_right": 0},
    ],
    ids=str,
)
def test_masks_over_poisoned_keys_and_values(masks: dict[str, Any]) -> None:
    """NaN in every key and value that no query of its sequence sees reaches no output."""
    batch = Batch(*MIXED)
    if masks.get("sinks"):
        masks = {**masks, "sinks": torch.linspace(-3, 3, batch.heads)}
    params = batch.params(**masks)
    batch.poison(params)
    assert_right(batch, params)


def test_a_range_seen_both_ways_beside_a_window() -> None:
    """Ranges before, across and behind the window; the hole between them holds NaN."""
    batch = Batch((18, 5), (50, 40), heads=2, kv_heads=1)
    ranges = torch.tensor([[[2, 6], [31, 45]], [[36, 40], [7, 7]]]).int()
    params = batch.params(window=3, prefix_ranges=ranges)
    batch.poison(params)
    assert_right(batch, params)


def test_a_row_that_sees_nothing_is_zero() -> None:
    """A window of 0 shows no key: zeros, not NaN, in every written row."""
    batch = Batch((17, 2), (40, 20))
    params = batch.params(window=0)
    batch.poison(params)
    assert torch.equal(batch.run(params), torch.zeros(19, 4, 16))


def test_softcap_and_alibi_bend_the_logits() -> None:
    """Logits large enough for the cap to matter, slopes that differ by head."""
    batch = Batch(*MIXED)
    batch.query *= 8
    assert_right(batch, batch.params(softcap=5.0))
    assert_right(batch, batch.params(alibi_slopes=torch.linspace(0.1, 1, batch.heads)))


@pytest.mark.parametrize(("heads", "kv_heads"), [(7, 1), (10, 2), (71, 1), (3, 3)])
def test_ratios_that_are_no_power_of_two(heads: int, kv_heads: int) -> None:
    """7, 5, 71 and 1 query heads a KV head: padded rows belong to no head."""
    batch = Batch((3, 1), (4, 18), heads=heads, kv_heads=kv_heads)
    assert_right(batch, batch.params(sinks=torch.linspace(-1, 1, heads)), FEW)


@pytest.mark.parametrize(
    ("width", "value_width"), [(40, 40), (72, 80), (96, 112), (192, 128), (32, 16), (16, 48)]
)
def test_widths_that_are_no_power_of_two(width: int, value_width: int) -> None:
    """K and V of widths cut in two parts, or padded, or unlike each other."""
    batch = Batch((2, 1), (20, 5), width=width, value_width=value_width, heads=2, kv_heads=1)
    assert_right(batch, batch.params(), FEW)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Within the budget of the precision, bfloat16 in the interpreter too."""
    batch = Batch(*MIXED, dtype=dtype)
    assert_right(batch, batch.params(window=20))


@pytest.mark.parametrize("layout", ["NHD", "HND", "interleaved"])
@pytest.mark.parametrize(("width", "value_width"), [(16, 16), (48, 32)])
def test_descriptors_give_what_pointers_give(layout: str, width: int, value_width: int) -> None:
    """The same batch read by tensor descriptors and by pointers, in each layout of the cache."""
    sizes = {"width": width, "value_width": value_width, "page": 32, "dtype": torch.float16}
    batch = Batch((3, 5), (5, 70), layout=layout, **sizes)
    boxes = msgspec.structs.replace(FEW, descriptors=True)
    params = batch.params()
    assert torch.equal(batch.run(params, boxes), batch.run(params, FEW))
    assert_right(batch, params, boxes)


def test_queries_from_a_fused_projection() -> None:
    """Q as a strided view of [T, (H + 2 Hk) D], out contiguous."""
    batch = Batch(*MIXED)
    whole = torch.full((batch.query.shape[0], 8 * 16), torch.nan)
    fused = whole[:, : 4 * 16].unflatten(1, (4, 16))
    fused.copy_(batch.query)
    batch.query = fused
    assert not fused.is_contiguous()
    assert_right(batch, batch.params())


def test_rows_of_no_sequence_are_left_alone() -> None:
    """Padding rows behind the last sequence keep what they held."""
    batch = Batch((17, 3), (17, 9))
    batch.query = torch.cat([batch.query, torch.full((2, 4, 16), torch.nan)])
    out = batch.run(batch.params())
    assert out[:20].isfinite().all()
    assert out[20:].isnan().all()


def test_larger_tiles_than_sequences() -> None:
    """The shipped tiles on a short batch: most of every tile is padding."""
    batch = Batch((17, 1), (17, 5))
    assert_right(batch, batch.params(window=4), Knobs())
    assert_right(batch, batch.params(), Knobs(prefill=Tiles(128, 32, 4, 2)))
