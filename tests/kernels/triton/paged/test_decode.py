"""The decode kernel and its reduce pass against the specification."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.paged import Knobs, paged_attention, prepare, workspace_size
from attnctl.kernels.triton.paged.call import shape_of
from attnctl.kernels.triton.paged.plan import plan
from tests.kernels.triton.batches import DEVICE, SMALL, Batch, assert_right

SPLIT = msgspec.structs.replace(SMALL, segments=4, fill=1000)
WHOLE = msgspec.structs.replace(SMALL, segments=1)
CONTEXTS = (1, 16, 90)


def chosen(batch: Batch, knobs: Knobs) -> Any:
    longest = max(batch.queries), max(batch.contexts)
    shape = shape_of(batch.query, batch.keys, batch.values, batch.lengths, *longest)
    return plan(shape, device_of(torch.device(DEVICE)), knobs)


@pytest.mark.parametrize("knobs", [SPLIT, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 1},
        {"window": 20},
        {"sinks": torch.linspace(-2, 2, 4)},
        {"sinks": torch.tensor([1.0, -torch.inf, 0.0, 30.0]), "window": 9},
        {"chunk": 32},
        {"alibi_slopes": torch.linspace(0.05, 0.5, 4), "softcap": 2.0},
    ],
    ids=lambda options: "+".join(options) or "plain",
)
def test_one_token_a_sequence(options: dict[str, Any], knobs: Knobs) -> None:
    """Every feature, keys cut in segments (some of them empty) and not, over poisoned keys."""
    batch = Batch((1,) * 3, CONTEXTS)
    params = batch.params(**options)
    batch.poison(params)
    assert chosen(batch, knobs).kernel == "decode"
    assert chosen(batch, knobs).segments == (4 if knobs is SPLIT else 1)
    assert_right(batch, params, knobs)


@pytest.mark.parametrize("knobs", [SPLIT, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize("options", [{}, {"window": 5}, {"chunk": 8}], ids=str)
def test_several_tokens_of_speculation(options: dict[str, Any], knobs: Knobs) -> None:
    """1 to 16 query tokens a sequence beside empty sequences, more tokens than a tile holds."""
    batch = Batch((4, 0, 16), (40, 0, 65))
    params = batch.params(**options)
    batch.poison(params)
    assert_right(batch, params, knobs)


@pytest.mark.parametrize(("heads", "kv_heads"), [(7, 1), (10, 2), (71, 1), (144, 1)])
def test_ratios_that_are_no_power_of_two(heads: int, kv_heads: int) -> None:
    """Also a group of 144 heads, more than the largest tile has rows."""
    batch = Batch((2, 1), (4, 20), heads=heads, kv_heads=kv_heads)
    assert_right(batch, batch.params(sinks=torch.linspace(-1, 1, heads)), SPLIT)


@pytest.mark.parametrize(("width", "value_width"), [(80, 40), (192, 128), (512, 512)])
def test_wide_and_unlike_heads(width: int, value_width: int) -> None:
    """K and V widths that differ, and the widest."""
    batch = Batch((1, 2), (20, 33), width=width, value_width=value_width, heads=2, kv_heads=1)
    assert_right(batch, batch.params(), SPLIT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Within the budget of the precision, parts summed in float32."""
    batch = Batch((1, 2), (70, 33), dtype=dtype)
    assert_right(batch, batch.params(), SPLIT)


def test_a_row_that_sees_nothing_is_zero_after_the_reduction() -> None:
    """All segments empty: zeros, not 0 / 0."""
    batch = Batch((1, 2), (70, 33))
    params = batch.params(window=0)
    batch.poison(params)
    assert torch.equal(batch.run(params, SPLIT), torch.zeros(3, 4, 16))


def test_bounds_above_the_batch_change_nothing() -> None:
    """A graph is captured with the largest lengths: the same output, bit for bit."""
    batch = Batch((1, 1), (60, 33))
    params = batch.params()
    wide = batch.run(params, SPLIT, max_seq_len=4096, max_query_len=2)
    assert torch.equal(wide, batch.run(params, SPLIT))


def test_padding_rows_are_left_alone_by_the_reduction() -> None:
    """Rows behind the last sequence keep what they held."""
    batch = Batch((1, 1), (60, 33))
    batch.query = torch.cat([batch.query, torch.full((2, 4, 16), torch.nan)])
    out = batch.run(batch.params(), SPLIT)
    assert out[:2].isfinite().all()
    assert out[2:].isnan().all()


def test_a_workspace_of_the_caller_serves_and_a_small_one_is_refused() -> None:
    """workspace_size() elements are enough, one less is an error before any launch."""
    batch = Batch((1, 1), (60, 33))
    tensors = [x.to(DEVICE) for x in (batch.query, batch.keys, batch.values)]
    tables = [x.to(DEVICE) for x in (batch.table, batch.starts, batch.lengths)]
    longest = {"max_query_len": 1, "max_seq_len": 60}
    prepared = prepare(*tensors, tables[2], **longest, knobs=SPLIT)
    size = workspace_size(prepared)
    assert size == 2 * 4 * 4 * (16 + 2)
    space = torch.full((size,), torch.nan, device=DEVICE)
    call = (*tensors, *tables, batch.params())
    out = paged_attention(*call, **longest, workspace=space, prepared=prepared)
    assert torch.equal(out.cpu(), batch.run(batch.params(), SPLIT))
    with pytest.raises(ValueError, match=f"has {size - 1} elements, needs {size}"):
        paged_attention(*call, **longest, workspace=space[:-1], prepared=prepared)
