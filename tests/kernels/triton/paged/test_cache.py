"""The cache write: every dtype, layout and pair of widths, padding slots and surplus rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.paged import Knobs, paged_attention, write_cache
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged
from tests.kernels.triton.batches import DEVICE, SMALL, empty_cache

PAGES, PAGE, HEADS = 3, 16, 3
SLOTS = (0, 17, -1, 35, -1)


def rows(tokens: int, width: int, dtype: torch.dtype, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, HEADS, width, generator=generator).to(dtype).to(DEVICE)


def caches(layout: str, width: int, value_width: int, stored: torch.dtype) -> tuple[Tensor, Tensor]:
    made = [empty_cache(layout, PAGES, PAGE, HEADS, w, stored) for w in (width, value_width)]
    return made[0].to(DEVICE), made[1].to(DEVICE)


def written(cache: Tensor) -> Tensor:
    """[slots, Hk, width] float32 of the slots that SLOTS names, and a check of all the others."""
    flat = cache.cpu().float().flatten(0, 1)
    live = [slot for slot in SLOTS if slot >= 0]
    rest = torch.ones(PAGES * PAGE, dtype=torch.bool)
    rest[live] = False
    assert flat[rest].isnan().all(), "a slot that no token has was written"
    return flat[live]


@pytest.mark.parametrize("layout", ["NHD", "HND", "interleaved"])
@pytest.mark.parametrize(("width", "value_width"), [(32, 32), (48, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rows_land_in_their_slots(
    layout: str, width: int, value_width: int, dtype: torch.dtype
) -> None:
    """Slot -1 writes nothing, nor do rows beyond slot_mapping, which hold NaN."""
    key, value = rows(7, width, dtype, 1), rows(7, value_width, dtype, 2)
    key[5:], value[5:] = math.nan, math.nan
    k_cache, v_cache = caches(layout, width, value_width, dtype)
    write_cache(key, value, k_cache, v_cache, torch.tensor(SLOTS, device=DEVICE))
    live = [0, 1, 3]
    assert torch.equal(written(k_cache), key[live].cpu().float())
    assert torch.equal(written(v_cache), value[live].cpu().float())


def test_rows_from_a_fused_projection() -> None:
    """K and V as strided views of one [T, (H + 2 Hk) D]."""
    fused = rows(5, 3 * 16, torch.float32, 3)
    key, value = fused[:, :, 16:32], fused[:, :, 32:]
    k_cache, v_cache = caches("NHD", 16, 16, torch.float32)
    write_cache(key, value, k_cache, v_cache, torch.tensor(SLOTS, device=DEVICE))
    assert torch.equal(written(k_cache), key[[0, 1, 3]].cpu())
    assert torch.equal(written(v_cache), value[[0, 1, 3]].cpu())


@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_fp8_stores_the_value_over_its_scale(stored: torch.dtype) -> None:
    """Each of K and V by its own scale, within half a step of FP8; the largest do not overflow."""
    key, value = rows(5, 32, torch.float32, 4), rows(5, 32, torch.float32, 5)
    key[0, 0, 0] = 1e9
    k_cache, v_cache = caches("NHD", 32, 32, stored)
    write_cache(key, value, k_cache, v_cache, torch.tensor(SLOTS, device=DEVICE), 0.5, 0.25)
    largest = torch.finfo(stored).max
    step = torch.finfo(stored).eps
    for cache, source, scale in ((k_cache, key, 0.5), (v_cache, value, 0.25)):
        wanted = (source[[0, 1, 3]].cpu() / scale).clamp(-largest, largest)
        smallest = torch.finfo(stored).smallest_normal
        torch.testing.assert_close(written(cache), wanted, rtol=step, atol=smallest)


@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_narrow_cache_gets_the_nearest_number_and_keeps_what_is_none(
    stored: torch.dtype, dtype: torch.dtype
) -> None:
    """Equal to torch's own rounding to the bit; NaN is no large number, which would look right."""
    key, value = rows(5, 32, dtype, 11), rows(5, 32, dtype, 12)
    key[0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    key[3], value[1, 2, 5] = math.nan, -math.nan
    k_cache, v_cache = caches("NHD", 32, 32, stored)
    write_cache(key, value, k_cache, v_cache, torch.tensor(SLOTS, device=DEVICE))
    for cache, source in ((k_cache, key), (v_cache, value)):
        wanted = source[[0, 1, 3]].cpu().float()
        if stored.itemsize == 1:
            wanted = wanted.clamp(*(sign * torch.finfo(stored).max for sign in (-1, 1)))
        assert torch.equal(
            written(cache).nan_to_num(1e9), wanted.to(stored).float().nan_to_num(1e9)
        )


@pytest.mark.parametrize("place", [0, 13, slice(None)])
def test_int8_says_by_its_scale_that_a_row_is_not_a_number(place: int | slice) -> None:
    """As on a processor: int8 has no NaN, and a zero in its place would look like a value."""
    key, value = rows(5, 16, torch.float16, 13), rows(5, 16, torch.float16, 14)
    key[1, 2, place] = math.nan
    k_cache, v_cache = caches("NHD", 16, 16, torch.int8)
    scales = [torch.zeros(PAGES, PAGE, HEADS, device=DEVICE) for _ in range(2)]
    write_cache(key, value, k_cache, v_cache, torch.tensor(SLOTS, device=DEVICE), *scales)
    found = scales[0].flatten(0, 1).cpu()
    assert found.isnan().nonzero().tolist() == [[17, 2]]
    assert not scales[1].isnan().any()


@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_attention_multiplies_fp8_by_the_scales(stored: torch.dtype) -> None:
    """The output is that of the dequantised cache, and scales of 1 would be off by far."""
    key, value = rows(20, 32, torch.float32, 6), rows(20, 32, torch.float32, 7)
    k_cache, v_cache = caches("NHD", 32, 32, stored)
    slots = torch.arange(20, device=DEVICE)
    write_cache(key, value, k_cache, v_cache, slots, 0.5, 0.25)
    scaled = Paged(scale=32**-0.5, k_scale=0.5, v_scale=0.25)
    out, exact = attend(k_cache, v_cache, scaled, SMALL)
    torch.testing.assert_close(out, exact.float(), rtol=1e-5, atol=1e-5)
    _, unscaled = attend(k_cache, v_cache, Paged(scale=32**-0.5), SMALL)
    assert (out - unscaled).norm() > 0.1 * out.norm()


@pytest.mark.parametrize("segments", [1, 4])
def test_int8_has_a_scale_per_token_and_head(segments: int) -> None:
    """Written scales are absmax / 127, values within half a step, and attention uses both."""
    key, value = rows(40, 32, torch.float32, 8), rows(40, 16, torch.float32, 9)
    key[3] *= 100
    k_cache, v_cache = caches("HND", 32, 16, torch.int8)
    scales = [torch.zeros(PAGES, PAGE, HEADS, device=DEVICE) for _ in range(2)]
    slots = torch.arange(40, device=DEVICE)
    write_cache(key, value, k_cache, v_cache, slots, *scales)
    for cache, scale, source in ((k_cache, scales[0], key), (v_cache, scales[1], value)):
        own = scale.flatten(0, 1)[:40]
        torch.testing.assert_close(own, source.abs().amax(-1) / 127)
        back = cache.flatten(0, 1)[:40].float() * own[..., None]
        assert ((back - source).abs() <= own[..., None] * 0.5001).all()
    params = Paged(scale=32**-0.5, k_scale=scales[0], v_scale=scales[1])
    knobs = Knobs(decode=SMALL.decode, segments=segments, fill=1000, least_keys=16)
    out, exact = attend(k_cache, v_cache, params, knobs, length=40)
    torch.testing.assert_close(out, exact.float(), rtol=1e-5, atol=1e-5)


def test_scales_that_do_not_fit_the_cache_are_refused() -> None:
    """int8 wants tensors, every other dtype numbers."""
    key = rows(1, 32, torch.float32, 0)
    slots = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="an int8 cache needs k_scale and v_scale tensors"):
        write_cache(key, key, *caches("NHD", 32, 32, torch.int8), slots)
    scale = torch.ones(PAGES, PAGE, HEADS)
    with pytest.raises(ValueError, match=r"a torch\.float32 cache takes .* as numbers"):
        write_cache(key, key, *caches("NHD", 32, 32, torch.float32), slots, scale, scale)


def test_no_slots_no_launch() -> None:
    """An empty slot_mapping leaves the cache as it was."""
    key = rows(2, 32, torch.float32, 0)
    cache, other = caches("NHD", 32, 32, torch.float32)
    write_cache(key, key, cache, other, torch.zeros(0, dtype=torch.int64, device=DEVICE))
    assert cache.isnan().all()


def attend(
    k_cache: Tensor, v_cache: Tensor, params: Paged, knobs: Knobs, length: int = 20
) -> tuple[Tensor, Tensor]:
    """One query token over the first slots: ours, and the specification in float64."""
    query = rows(1, 32, torch.float32, 10).repeat(1, 2, 1)
    table = torch.arange(PAGES, device=DEVICE).int()[None]
    starts = torch.tensor([0, 1], device=DEVICE).int()
    lengths = torch.tensor([length], device=DEVICE).int()
    inputs = (query, k_cache, v_cache, table, starts, lengths, params)
    out = paged_attention(*inputs, max_query_len=1, max_seq_len=length, knobs=knobs)
    return out.cpu(), specification.paged_attention(*inputs).cpu()
