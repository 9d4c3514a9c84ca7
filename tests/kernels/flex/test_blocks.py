"""The pages that FLEX_ATTENTION's kernel visits, and what lies in them unseen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.kernels.flex.attend import attend, batch_of, unfused
from attnctl.kernels.flex.blocks import blocks
from attnctl.kernels.flex.items import items
from attnctl.kernels.flex.pages import packed
from attnctl.ops.paged import visible
from attnctl.ops.paged_cases import PHASES, case
from attnctl.ops.paged_inputs import Batch, build
from tests.kernels.flex.batches import MASKS, cache_of, metadata_of, specified

pytestmark = pytest.mark.usefixtures("one_thread")


def visiting(
    query: Tensor, key: Tensor, value: Tensor, logical: Tensor, spans: Tensor, *rest: Any
) -> Tensor:
    """What the GPU's kernel does: the listed pages alone, weights of 0 times values too."""
    (part_count, part, full_count, full), _, _, scale, size, _ = rest
    out = query.new_zeros(*query.shape[:3], value.shape[3])
    groups = query.shape[1] // key.shape[1]
    for item in range(query.shape[0]):
        listed = [*part[item, 0, 0, : int(part_count[item])]]
        listed += [*full[item, 0, 0, : int(full_count[item])]]
        if not listed:
            continue
        rows = torch.cat([torch.arange(size) + int(page) * size for page in listed])
        at = logical[item, rows // size] * size + rows % size
        sees = (at >= spans[item, :, :1]) & (at < spans[item, :, 1:2])
        keys = key[0, :, rows].repeat_interleave(groups, 0)
        scores = (query[item] @ keys.mT * scale).masked_fill(~sees, -torch.inf)
        weights = torch._safe_softmax(scores, -1)
        out[item] = weights @ value[0, :, rows].repeat_interleave(groups, 0)
    return out


@pytest.mark.parametrize("place", ["cache", "packed"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MASKS)
def test_values_that_no_token_sees_may_be_nan(name: str, phase: str, place: str) -> None:
    """NaN before the window, after the end and in pages of no sequence reaches no output."""
    batch = build(case(**{**PHASES[phase], **MASKS[name], "dtype": "float32", "poison": True}))
    cache, metadata = cache_of(batch, torch.nan), metadata_of(batch)
    before, tokens = cache.clone(), batch.query.shape[0]
    one = batch_of(cache, metadata, batch.params, tokens, torch.float32, place=place)
    found = attend(batch.query, cache, one, batch.params, visiting)
    wanted = specified(batch, cache)
    assert bool(wanted.isfinite().all())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(cache.isnan(), before.isnan())
    assert torch.equal(cache.nan_to_num(7.0), before.nan_to_num(7.0))


def test_in_place_only_unseen_rows_of_visited_pages_are_made_finite_and_for_a_while() -> None:
    """What a token sees stays as it is, and so do pages of no sequence and all keys."""
    batch = build(case(queries="1+0+2", contexts="20+0+75", window=4, dtype="float32"))
    cache = cache_of(batch, torch.nan)
    width, before, seen = batch.query.shape[2], cache.clone(), []

    def run(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
        seen.append(cache.clone())
        return unfused(query, key, value, *rest)

    one = batch_of(cache, metadata_of(batch), batch.params, 3, torch.float32, place="cache")
    attend(batch.query, cache, one, batch.params, run)
    changed = (seen[0].isnan() != before.isnan())[..., width:].flatten(2).any(-1)
    wanted = torch.zeros_like(changed)
    wanted[batch.block_table[0, 1], 4:] = True
    wanted[batch.block_table[2, 4], 11:] = True
    assert torch.equal(changed, wanted)
    assert torch.equal(seen[0].nan_to_num(7.0)[..., :width], before.nan_to_num(7.0)[..., :width])
    assert torch.equal(cache.nan_to_num(7.0), before.nan_to_num(7.0))


def test_an_unseen_row_that_sequences_share_is_made_finite_for_all() -> None:
    """The window of the longer one begins inside the page that the shorter one ends in."""
    batch = build(case(queries="1+1", contexts="20+30", window=4, dtype="float32"))
    batch.block_table[0, :2] = batch.block_table[1, :2]
    cache = cache_of(batch, 0.0)
    cache[batch.block_table[1, 1], 6, :, batch.query.shape[2] :] = torch.nan
    one = batch_of(cache, metadata_of(batch), batch.params, 2, torch.float32, place="cache")
    found = attend(batch.query, cache, one, batch.params, visiting)
    assert bool(found.isfinite().all())
    cache = cache.nan_to_num(0.0)
    torch.testing.assert_close(found.double(), specified(batch, cache), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MASKS)
def test_block_lists_name_the_pages_that_rows_see_and_no_others(name: str, phase: str) -> None:
    """A full page is seen whole by all rows of its item, a partial one by some in part."""
    batch = build(case(**{**PHASES[phase], **MASKS[name], "dtype": "float32"}))
    metadata = metadata_of(batch)
    found = items(metadata, batch.params, batch.query.shape[0])
    pages = packed(metadata, found, 16)
    lists = blocks(found, pages, 16)
    for item in range(found.sequence.shape[0]):
        part = lists.part[item, 0, 0, : int(lists.part_count[item])].tolist()
        full = lists.full[item, 0, 0, : int(lists.full_count[item])].tolist()
        wanted = _pages_seen(batch, found, item, pages.table)
        assert (sorted(part), sorted(full)) == wanted


def _pages_seen(batch: Batch, found: Any, item: int, table: Tensor) -> tuple[list[int], list[int]]:
    """By the specification's own mask: pages seen in part, and whole."""
    b = int(found.sequence[item])
    live = found.live[item]
    if not bool(live.any()):
        return [], []
    length = int(batch.seq_lens[b])
    queries = int(batch.query_start_loc.diff()[b])
    ranges = batch.params.prefix_ranges
    seen = visible(queries, length, batch.params, None if ranges is None else ranges[b])
    rows = seen[(found.position[item][live] - (length - queries)).long()]
    part, full = [], []
    for logical in range(-(-length // 16)):
        piece = rows[:, logical * 16 : logical * 16 + 16]
        page = int(table[b, logical])
        if piece.shape[1] == 16 and bool(piece.all()):
            full.append(page)
        elif bool(piece.any()) or _between(rows, logical * 16):
            part.append(page)
    return sorted(part), sorted(full)


def _between(rows: Tensor, start: int) -> bool:
    """Pages between what two rows see are visited too: the pages of an item are one run."""
    return bool(rows[:, :start].any()) and bool(rows[:, start:].any())
