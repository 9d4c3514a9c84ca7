"""The launches around a library's kernel do what their plain-torch counterparts do."""

from __future__ import annotations

import pytest
import torch

from attnctl.kernels.latent import tokens as tokens
from attnctl.kernels.triton.latent import settle_rows
from tests.kernels.triton.batches import DEVICE


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.parametrize(("places", "multiple"), [(1, 1), (5, 128), (129, 128), (1500, 1)])
def test_named_slots_are_those_of_the_cache_and_counted(places: int, multiple: int) -> None:
    """Beyond it, far beyond it and below zero is -1; the rest of a row is filled up with it."""
    values = torch.tensor([0, 3, 99, 100, 2**31 - 1, -1, -7, -(2**31)], dtype=torch.int32)
    picked = torch.randint(0, 8, (3, places), generator=torch.Generator().manual_seed(places))
    slots = values[picked]
    wanted, count = tokens.name_slots(slots, 100, multiple)
    assert wanted.shape[1] % multiple == 0
    assert set(wanted.unique().tolist()) <= {-1, 0, 3, 99}
    strided = torch.stack([slots, slots], 2).to(DEVICE)[..., 0]
    for given in (slots.to(DEVICE), strided):
        named, counted = settle_rows.name_slots(given, 100, wanted.shape[1])
        assert torch.equal(named.cpu(), wanted)
        assert torch.equal(counted.cpu(), count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_results_are_settled_in_live_rows_alone(
    dtype: torch.dtype, counted: bool, with_lse: bool, factor: float
) -> None:
    """Rows that saw nothing get 0 and -inf, whatever was there; strides of both sides differ."""
    found = drawn(5, 4, 48).to(dtype)[:, :3, :40]
    found[1] = torch.nan
    top = drawn(5, 4)[:, :3]
    starts = torch.tensor([0, 1, 4], dtype=torch.int32)
    count = torch.tensor([2, 0, 1, 1, 0], dtype=torch.int32) if counted else None
    outs, tops = [], []
    for place, settle in (("cpu", tokens.settle), (DEVICE, settle_rows.settle)):
        out = torch.full((5, 6, 40), 7.0, dtype=dtype, device=place)[:, ::2]
        lse = torch.full((3, 5), 7.0, device=place).t() if with_lse else None
        moved = None if count is None else count.to(place)
        settle(found.to(place), top.to(place), out, lse, starts.to(place), moved, factor)
        outs.append(out.cpu())
        tops.append(None if lse is None else lse.cpu())
    assert torch.equal(outs[0].nan_to_num(99.0), outs[1].nan_to_num(99.0))
    assert torch.equal(outs[1][4], torch.full((3, 40), 7.0, dtype=dtype))
    assert torch.equal(outs[1][0], (found[0].float() * factor).to(dtype))
    assert bool((outs[1][1] == 0).all()) is counted
    if with_lse:
        assert torch.equal(tops[0], tops[1])
        assert torch.equal(tops[1][0], top[0])
        assert bool((tops[1][1] == -torch.inf).all()) is counted
        assert tops[1][4].tolist() == [7.0, 7.0, 7.0]


def test_many_heads_take_several_programs() -> None:
    """128 heads of 512 are 16 pieces of a row."""
    found, top = drawn(2, 128, 512), drawn(2, 128)
    starts = torch.tensor([0, 2], dtype=torch.int32)
    out, lse = torch.zeros(2, 128, 512, device=DEVICE), torch.zeros(2, 128, device=DEVICE)
    places = (found.to(DEVICE), top.to(DEVICE), out, lse, starts.to(DEVICE))
    settle_rows.settle(*places, None, 1.0)
    assert torch.equal(out.cpu(), found)
    assert torch.equal(lse.cpu(), top)
