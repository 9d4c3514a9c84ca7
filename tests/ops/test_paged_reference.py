"""The specification of paged attention against facts worked out apart from it."""

from __future__ import annotations

import torch

from attnctl.ops.paged import Paged, attend, paged_attention, visible


def fill(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> torch.Tensor:
    """scale * sin(1 + seed + 0.7 i) over the flat index i, float64."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return scale * torch.sin(1 + seed + 0.7 * count).reshape(shape)


def paged(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, params: Paged, size: int):
    """One sequence through pages laid out in reverse, so that the table matters."""
    length = keys.shape[0]
    pages = -(-length // size)
    table = torch.arange(pages).flip(0)[None]
    cache = [
        torch.full((pages, size, *x.shape[1:]), torch.nan, dtype=x.dtype) for x in (keys, values)
    ]
    for position in range(length):
        page = table[0, position // size]
        cache[0][page, position % size] = keys[position]
        cache[1][page, position % size] = values[position]
    starts, lens = torch.tensor([0, query.shape[0]]), torch.tensor([length])
    return paged_attention(query, *cache, table, starts, lens, params)


def test_a_window_counts_the_token_itself_and_masked_values_do_not_leak() -> None:
    """Window 4 over 9 tokens sees the last four, and NaN in the others changes nothing."""
    query, keys, values = fill((1, 1, 32), 0), fill((9, 1, 32), 10), fill((9, 1, 32), 20)
    params = Paged(scale=32**-0.5, window=4)
    assert visible(1, 9, params).nonzero()[:, 1].tolist() == [5, 6, 7, 8]
    out = paged(query, keys, values, params, 16)
    expected = torch.tensor([-0.90086, -0.587355, 0.002392, 0.591014], dtype=torch.float64)
    torch.testing.assert_close(out[0, 0, :4], expected, atol=1e-6, rtol=0)
    assert abs(out.sum().item() - 0.072693) < 1e-6
    values[:5] = torch.nan
    assert torch.equal(paged(query, keys, values, params, 16), out)


def test_softcap_bends_large_logits() -> None:
    """Logits large enough to be bent give the capped result and not the uncapped one."""
    query, keys, values = fill((2, 1, 32), 2, 12), fill((6, 1, 32), 12), fill((6, 1, 32), 22)
    capped = paged(query, keys, values, Paged(scale=32**-0.5, softcap=5.0), 4)
    plain = paged(query, keys, values, Paged(scale=32**-0.5), 4)
    want = torch.tensor([-0.575074, -0.714225, -0.517465, -0.077333], dtype=torch.float64)
    torch.testing.assert_close(capped[1, 0, :4], want, atol=1e-6, rtol=0)
    want = torch.tensor([-0.846219, -0.990484, -0.66891, -0.032737], dtype=torch.float64)
    torch.testing.assert_close(plain[1, 0, :4], want, atol=1e-6, rtol=0)


def test_a_row_that_sees_nothing_is_zero_and_empty_sequences_write_nothing() -> None:
    """Lengths 0 beside 3 and 20: rows of no sequence stay, a fully masked row is 0, no NaN."""
    cache = fill((4, 16, 1, 32), 1)
    table = torch.tensor([[0, 0], [1, 0], [0, 0], [2, 3]])
    starts, lens = torch.tensor([0, 0, 3, 3, 4]), torch.tensor([0, 3, 0, 20])
    query, out = fill((5, 2, 32), 3), torch.full((5, 2, 32), 7.0, dtype=torch.float64)
    paged_attention(query, cache, cache, table, starts, lens, Paged(scale=1.0), out=out)
    assert out.isfinite().all()
    assert (out[4] == 7.0).all()
    nothing = Paged(scale=1.0, window=0)
    rows = paged_attention(query[:4], cache, cache, table, starts, lens, nothing)
    assert torch.equal(rows, torch.zeros_like(rows))


def test_a_sink_takes_weight_and_gives_no_value() -> None:
    """Against a softmax with the sink as one more column whose value is dropped."""
    query, keys, values = fill((3, 4, 16), 1), fill((7, 2, 16), 2), fill((7, 2, 16), 3)
    sinks = fill((4,), 5, 2.0)
    seen = visible(3, 7, Paged(scale=0.3))
    out = attend(query, keys, values, seen, Paged(scale=0.3, sinks=sinks))
    logits = torch.einsum("qhd,shd->hqs", query, keys.repeat_interleave(2, 1)) * 0.3
    logits = torch.cat(
        [logits.masked_fill(~seen, -torch.inf), sinks[:, None, None].expand(4, 3, 1)], -1
    )
    weights = torch.softmax(logits, -1)[..., :-1]
    torch.testing.assert_close(
        out, torch.einsum("hqs,shd->qhd", weights, values.repeat_interleave(2, 1))
    )


def test_plain_attention_is_what_torch_computes() -> None:
    """Causal, grouped heads, against scaled_dot_product_attention in float64."""
    query, keys, values = fill((6, 6, 24), 1), fill((6, 2, 24), 2), fill((6, 2, 40), 3)
    out = paged(query, keys, values, Paged(scale=24**-0.5), 4)
    heads = [x.transpose(0, 1)[None] for x in (query, keys, values)]
    want = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(out, want[0].transpose(0, 1))


def test_ranges_see_both_ways_across_windows_and_chunks_end_at_their_edge() -> None:
    """A bidirectional range is added after the masks; chunked attention restarts at each chunk."""
    ranges = torch.tensor([[2, 5], [0, 0]])
    seen = visible(6, 6, Paged(scale=1.0, window=2), ranges)
    assert seen[2].tolist() == [False, True, True, True, True, False]
    assert seen[5].tolist() == [False, False, False, False, True, True]
    assert visible(2, 6, Paged(scale=1.0, chunk=4))[1].tolist() == [False] * 4 + [True] * 2
    two_sided = Paged(scale=1.0, causal=False, window=2, window_right=1)
    assert visible(4, 4, two_sided)[1].tolist() == [True, True, True, False]
