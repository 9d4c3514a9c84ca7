"""The specification of merging attention states against attention over all keys at once."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.merge_states_cases import cases, layer_for
from attnctl.ops.mla import attend


def attention(seed: int, keys: int) -> tuple[torch.Tensor, ...]:
    """A query [3, 2, 8], keys and values of as many tokens, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return draw(3, 2, 8), draw(keys, 2, 8), draw(keys, 2, 6)


def over(parts: tuple[torch.Tensor, ...], begin: int, end: int):
    query, keys, values = parts
    seen = torch.ones(3, end - begin, dtype=torch.bool)
    return attend(query, keys[begin:end], values[begin:end], seen, 0.7)


@given(seed=st.integers(0, 10**6), keys=st.integers(0, 9), data=st.data())
def test_two_parts_merged_are_the_whole_wherever_the_context_is_cut(seed, keys, data) -> None:
    """A cut at either end gives an empty side, whose lse is -inf, and changes nothing."""
    parts, cut = attention(seed, keys), data.draw(st.integers(0, keys))
    out, lse = merge_attn_states(*over(parts, 0, cut), *over(parts, cut, keys))
    whole = over(parts, 0, keys)
    torch.testing.assert_close(out, whole[0])
    torch.testing.assert_close(lse, whole[1])


def test_merging_is_associative_and_takes_either_order() -> None:
    """Three parts, joined from the left, from the right and the other way round."""
    parts = attention(1, 9)
    a, b, c = over(parts, 0, 2), over(parts, 2, 7), over(parts, 7, 9)
    left = merge_attn_states(*merge_attn_states(*a, *b), *c)
    right = merge_attn_states(*a, *merge_attn_states(*b, *c))
    turned = merge_attn_states(*c, *merge_attn_states(*b, *a))
    for other in (right, turned):
        torch.testing.assert_close(left, other)


@pytest.mark.parametrize("absent", [-math.inf, math.inf])
def test_a_side_without_keys_is_ignored_whatever_its_output_holds(absent: float) -> None:
    """NaN in the output of an empty side does not leak; with both empty the row is 0, lse -inf."""
    out = torch.full((1, 4, 3), torch.nan)
    other = torch.tensor([[[1.0, 2.0, 3.0]] * 4])
    empty, full = torch.full((1, 4), absent), torch.full((1, 4), 0.5)
    for sides in ((out, empty, other, full), (other, full, out, empty)):
        merged, lse = merge_attn_states(*sides)
        assert torch.equal(merged, other.double())
        assert torch.equal(lse, full.double())
    merged, lse = merge_attn_states(out, empty, out, empty)
    assert torch.equal(merged, torch.zeros_like(merged))
    assert (lse == -torch.inf).all()


def test_far_apart_sides_do_not_overflow() -> None:
    """exp(1e4) is beyond float64: the larger side wins whole, and lse stays finite."""
    one, two = torch.ones(1, 1, 2), torch.full((1, 1, 2), 2.0)
    merged, lse = merge_attn_states(one, torch.tensor([[1e4]]), two, torch.tensor([[-1e4]]))
    assert torch.equal(merged, one.double())
    assert lse.item() == 1e4


def test_equal_sides_are_averaged() -> None:
    """Two sides of the same weight: the mean, and ln 2 more."""
    one, three = torch.ones(1, 1, 2), torch.full((1, 1, 2), 3.0)
    merged, lse = merge_attn_states(one, torch.zeros(1, 1), three, torch.zeros(1, 1))
    assert merged.tolist() == [[[2.0, 2.0]]]
    assert lse.item() == pytest.approx(math.log(2))


def test_cases_ask_about_latent_layers() -> None:
    """Merging is asked of latent attention's backends."""
    for one in cases():
        assert layer_for(one).op == "mla"
