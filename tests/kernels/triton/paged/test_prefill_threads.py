"""Hopper's prefill kernel, whose source runs in threads here: rows, masks and barriers."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.paged import prefill_copy, prefill_groups, prefill_hopper, prefill_units
from attnctl.kernels.triton.paged.prefill_call import packed_launch, paged_launch
from attnctl.kernels.triton.paged.prefill_forms import HALF, LONG, PAIR, TINY, Form
from tests.kernels.triton.gluon_threads import StuckError, run_in_threads, source_of

HOPPER = Device("sm_90", 1, 232448)
SCALE = 0.1
FACTOR = SCALE * 1.4426950408889634
SOURCE = source_of((prefill_units, prefill_copy, prefill_groups, prefill_hopper))
FORMS = [LONG, PAIR, HALF, TINY]


def starts_of(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence's output [T, H, Dv] and log-sum-exp [T, H] in float64; zeros without keys."""
    logits = torch.einsum("qhd,khd->qhk", query.double(), keys.double()) * SCALE
    if causal:
        last = keys.shape[0] - query.shape[0] + torch.arange(query.shape[0])
        unseen = torch.arange(keys.shape[0])[None] > last[:, None]
        logits = logits.masked_fill(unseen[:, None], -torch.inf)
    top = logits.logsumexp(-1) if keys.shape[0] else torch.full(logits.shape[:2], -torch.inf)
    weights = torch.exp(logits - top.clamp(min=-1e30)[..., None])
    return torch.einsum("qhk,khd->qhd", weights, values.double()), top


def run_packed(
    queries: list[int],
    lengths: list[int],
    form: Form,
    *,
    causal: bool = True,
    width: int = 192,
    source: str = SOURCE,
    patience: float = 20.0,
) -> None:
    """Runs a batch of two heads and compares every row."""
    query, keys = drawn(1, sum(queries), 2, width), drawn(2, sum(lengths), 2, width)
    values = drawn(3, sum(lengths), 2, 128)
    out = torch.full((sum(queries), 2, 128), torch.nan).bfloat16()
    lse = torch.full((sum(queries), 2), torch.nan)
    starts, key_starts = starts_of(queries), starts_of(lengths)
    for b, count in enumerate(queries):
        if not count:
            # rows that nobody asks for, beside those of others
            values[int(key_starts[b]) : int(key_starts[b + 1])] = torch.nan
    launch = packed_launch(
        (query, keys, values, out, lse), starts, key_starts, (128, width - 128), FACTOR, causal,
        max(queries), HOPPER, form=form,
    )  # fmt: skip
    assert launch is not None
    run_in_threads(launch, source, 3, patience)
    for b, (count, length) in enumerate(zip(queries, lengths, strict=True)):
        rows = slice(int(starts[b]), int(starts[b]) + count)
        seen = slice(int(key_starts[b]), int(key_starts[b]) + length)
        wanted, top = attention(query[rows], keys[seen], values[seen], causal)
        torch.testing.assert_close(out[rows].double(), wanted, atol=2e-2, rtol=1e-2)
        torch.testing.assert_close(lse[rows].double(), top.double(), atol=1e-4, rtol=1e-4)


EDGES = [
    [17] * 3,
    [63, 64, 65],
    [127, 128, 129],
    [200] * 2,
    [191, 192, 193, 1],
    [300, 0, 1, 100],
    [0, 70, 0],
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lengths", EDGES, ids=str)
def test_prompts_at_the_edges_of_tiles_are_right(lengths: list[int], form: Form) -> None:
    """Of one length and of many; a sequence without tokens between others."""
    run_packed(lengths, [max(length, 5) for length in lengths], form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [True, False])
def test_keys_before_the_queries_and_fewer_keys_than_queries_are_right(
    form: Form, causal: bool
) -> None:
    """A context, none, no keys at all, and rows that see none of them."""
    run_packed([5, 70, 3, 100], [200, 70, 0, 40], form, causal=causal)


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_128_columns_have_no_high_part(form: Form) -> None:
    """Which is neither copied nor multiplied."""
    run_packed([129, 30], [129, 30], form, width=128)


@pytest.mark.parametrize(("page", "queries"), [(16, [200, 30]), (128, [200, 30]), (256, [129, 7])])
def test_pages_are_found_and_heads_share_their_keys(page: int, queries: list[int]) -> None:
    """Four query heads over two KV heads, a context before each sequence, pages in any order."""
    lengths = [count + 100 for count in queries]
    pages = [-(-length // page) for length in lengths]
    cache = drawn(1, 2, sum(pages) + 1, page, 2, 128)
    table = torch.zeros(2, max(pages), dtype=torch.int32)
    order = iter(torch.randperm(sum(pages), generator=torch.Generator().manual_seed(1)) + 1)
    for b, count in enumerate(pages):
        table[b, :count] = torch.stack([next(order) for _ in range(count)])
    query = drawn(2, sum(queries), 4, 128)
    out, starts = torch.full_like(query, torch.nan), starts_of(queries)
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    tensors = (query, cache[0], cache[1], out, table, starts, seq_lens)
    launch = paged_launch(tensors, FACTOR, 1.0, True, (max(queries), max(lengths)), HOPPER)
    assert launch is not None
    run_in_threads(launch, SOURCE, 2)
    for b, (count, length) in enumerate(zip(queries, lengths, strict=True)):
        rows = slice(int(starts[b]), int(starts[b]) + count)
        seen = cache[:, table[b].long()].flatten(1, 2)[:, :length].repeat_interleave(2, 2)
        wanted, _ = attention(query[rows], seen[0], seen[1], True)
        torch.testing.assert_close(out[rows].double(), wanted, atol=2e-2, rtol=1e-2)


PLANTED = [
    # a wait too few, an arrival too few, a key too many, rows behind the last one not cleared
    ("mbarrier.wait(q_full.index(asked), done // QUERIES & 1)", "pass", AssertionError),
    ("mbarrier.arrive(v_empty.index(before))", "pass", StuckError),
    ("last = gl.minimum(last, position + row)", "last = last + 0", AssertionError),
    ("clear_behind(values.index(place), length - (count - 1) * KEYS)", "pass", AssertionError),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("line", "instead", "fault"), PLANTED)
def test_faults_planted_in_the_source_are_found(
    form: Form, line: str, instead: str, fault: type[Exception]
) -> None:
    """Each is one line of the kernel changed: a wrong row, or a group that waits in vain."""
    assert line in SOURCE
    changed = SOURCE.replace(line, instead)
    with pytest.raises(fault):
        run_packed([200, 0, 70], [200, 9, 70], form, source=changed, patience=2)
