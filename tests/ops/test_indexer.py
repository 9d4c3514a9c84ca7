"""The specification of the lightning indexer: its cache, its logits, its picks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.ops.indexer import (
    Indexing,
    head_dim_of,
    index_cache_shape,
    index_logits,
    key_planes,
    pick_topk,
    write_index_keys,
)
from attnctl.ops.indexer_cases import case, layer_for
from attnctl.ops.indexer_trial import picks_fault
from attnctl.ops.packed_rows import quantize_groups

PARAMS = Indexing(topk=4, scale=0.25)
HEADS, PAGE = 3, 4


def one_sequence(length: int, queries: int, seed: int = 0):
    """Query, weights, filled cache and lengths of one sequence in pages laid out in reverse."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(queries, HEADS, 128, generator=generator)
    weights = torch.randn(queries, HEADS, generator=generator)
    key = torch.randn(length, 128, generator=generator)
    pages = -(-length // PAGE)
    table = torch.arange(pages).flip(0)[None]
    position = torch.arange(length)
    slots = table[0, position // PAGE] * PAGE + position % PAGE
    cache = torch.full(index_cache_shape(pages, PAGE, 128), 255, dtype=torch.uint8)
    write_index_keys(key, cache, slots, PARAMS)
    places = (table, torch.tensor([0, queries]), torch.tensor([length]))
    return query, weights, key, cache, places


def test_a_token_takes_132_bytes_and_a_page_holds_its_keys_before_its_scales() -> None:
    """The byte of a key and the scale behind all keys of the page, by hand."""
    assert index_cache_shape(7, 64, 128) == (7, 64, 132)
    cache = torch.zeros(2, 4, 132, dtype=torch.uint8)
    key = torch.zeros(1, 128)
    key[0, 5] = -896.0
    write_index_keys(key, cache, torch.tensor([6]), PARAMS)
    page = cache[1].flatten()
    assert page[2 * 128 + 5] == 0xFE
    assert page[4 * 128 + 2 * 4 : 4 * 128 + 3 * 4].view(torch.float32).item() == 2.0
    assert int((cache != 0).sum()) == 2  # 0xFE and the one byte of 2.0 that is not 0


@pytest.mark.parametrize("width", [32, 64, 128, 192, 256])
def test_every_head_width_is_read_back_from_the_cache_shape(width: int) -> None:
    """D follows from bytes a token; 192 has two scales."""
    cache = torch.zeros(index_cache_shape(2, 4, width), dtype=torch.uint8)
    assert head_dim_of(cache) == width
    keys, scales = key_planes(cache)
    assert keys.shape == (2, 4, width)
    assert scales.shape == (2, 4, -(-width // 128))


def test_slot_minus_one_and_rows_past_the_slots_are_not_written() -> None:
    """A captured graph's padding leaves the cache as it was."""
    cache = torch.full((2, 4, 132), 255, dtype=torch.uint8)
    write_index_keys(torch.ones(5, 128), cache, torch.tensor([3, -1, 5, -1]), PARAMS)
    keys, _ = key_planes(cache)
    written = (keys.view(torch.uint8) != 255).all(-1).flatten().nonzero().flatten()
    assert written.tolist() == [3, 5]


def test_scales_of_the_format_ue8m0_are_the_next_power_of_two() -> None:
    """448 keeps the scale 1; anything above doubles it; a row of zeros has a finite one."""
    rows = torch.tensor([[448.0, 1.0], [449.0, 1.0], [0.0, 0.0]])
    values, scales = quantize_groups(rows, 128, power_of_two=True)
    assert scales[:2, 0].tolist() == [1.0, 2.0]
    assert values.float().isfinite().all()
    assert scales[2, 0] > 0
    assert torch.log2(scales).frac().abs().max() == 0


def test_logits_are_the_weighted_sum_of_what_relu_leaves_of_each_head() -> None:
    """Against the formula token by token, on the dequantised keys; nothing beyond the query."""
    query, weights, key, cache, places = one_sequence(11, 3)
    values, scales = quantize_groups(key, 128)
    held = values.double() * scales.double()
    logits = index_logits(query, weights, cache, *places, PARAMS)
    for t in range(3):
        for s in range(11):
            heads = torch.relu(query[t].double() @ held[s]) * weights[t].double()
            wanted = heads.sum() * 0.25 if s <= 8 + t else torch.tensor(-torch.inf)
            torch.testing.assert_close(logits[t, s], wanted.double())


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    """Two sequences at once give what each gives alone; a row of no sequence sees nothing."""
    first, second = one_sequence(9, 2, seed=1), one_sequence(5, 1, seed=2)
    cache = torch.cat([first[3], second[3]])
    table = torch.zeros(2, 3, dtype=torch.int64)
    table[0], table[1, :2] = first[4][0][0], second[4][0][0] + 3
    query = torch.cat([first[0], second[0], torch.ones(1, 3, 128)])
    weights = torch.cat([first[1], second[1], torch.ones(1, 3)])
    starts, lens = torch.tensor([0, 2, 3]), torch.tensor([9, 5])
    logits = index_logits(query, weights, cache, table, starts, lens, PARAMS)
    alone = [index_logits(*x[:2], x[3], *x[4], PARAMS) for x in (first, second)]
    torch.testing.assert_close(logits[:2], alone[0])
    torch.testing.assert_close(logits[2:3, :5], alone[1])
    assert (logits[2, 5:] == -torch.inf).all()
    assert (logits[3] == -torch.inf).all()


LOGITS = st.lists(st.sampled_from([-2.0, -0.0, 0.0, 1.0, 3.0, float("-inf")]), max_size=12)


@given(row=LOGITS, topk=st.integers(1, 14))
@settings(max_examples=200)
def test_picks_are_the_largest_and_of_equal_ones_the_first_in_the_order_of_the_context(
    row: list[float], topk: int
) -> None:
    """Against a sort in Python by (logit down, index up); -0 is 0, and -1 fills the row."""
    visible = [s for s, logit in enumerate(row) if logit > float("-inf")]
    best = sorted(visible, key=lambda s: (-row[s], s))[:topk]
    wanted = sorted(best) + [-1] * (topk - len(best))
    picks = pick_topk(torch.tensor([row], dtype=torch.float64), topk)
    assert picks.dtype is torch.int32
    assert picks[0].tolist() == wanted


@pytest.mark.parametrize("context", [2047, 2048, 2049])
def test_lists_of_2048_around_their_own_length(context: int) -> None:
    """2047 leaves one -1, 2048 none, 2049 drops the smallest logit."""
    logits = torch.arange(context, dtype=torch.float64).flip(0)[None]
    picks = pick_topk(logits, 2048)[0]
    assert picks[:2047].tolist() == list(range(2047))
    assert picks[2047].item() == (-1 if context == 2047 else 2047)


def test_the_judge_of_picks_tells_each_fault_apart() -> None:
    """A kernel may differ where logits are as near as its precision, and nowhere else."""
    exact = torch.tensor([[5.0, 1.0, 1.0 + 1e-9, 3.0, -torch.inf]], dtype=torch.float64)
    four = torch.tensor([[5.0, 1.0, 2.0, -torch.inf]], dtype=torch.float64)
    right = [0, 2, 3]

    def fault(*row: int, slack: float = 0.0, logits: torch.Tensor = exact) -> str:
        return picks_fault(torch.tensor([row]), logits, slack)

    assert fault(*right) == ""
    assert "number of tokens" in fault(0, 3, -1)
    assert "-1 is not" in fault(0, -1, 2, 3, logits=four)
    assert "order" in fault(3, 2, 0)
    assert "one twice" in fault(0, 0, 3)
    assert "1 does not belong" in fault(0, 1, 3)
    assert fault(0, 1, 3, slack=1e-6) == ""
    assert "0 is missing" in fault(1, 2, 3, slack=1e-6)
    assert "no context token" in fault(0, 3, 9)
    ties = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    assert "first do not win" in fault(1, 2, logits=ties)


def test_cases_ask_about_sparse_layers() -> None:
    """The layer is one that has an indexer."""
    layer = layer_for(case(index_heads=32, topk=2048))
    assert layer.op == "mla_sparse"
    assert layer.group.indexer is not None
    assert (layer.group.indexer.heads, layer.group.indexer.topk) == (32, 2048)
