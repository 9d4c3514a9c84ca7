"""Cache writes on the processor: what lands where, in which bits."""

from __future__ import annotations

import pytest
import torch

from attnctl.kernels.cpu.fallback import TorchKernels
from attnctl.kernels.cpu.paged import Kernels, open_kernels
from attnctl.probe.realhost import RealHost
from tests.kernels.cpu.batches import poisoned

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(scope="module", params=["c++", "torch"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    if request.param == "torch":
        return TorchKernels()
    found, finding = open_kernels(RealHost())
    assert found.name == "c++", finding
    return found


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def rows(dtype: torch.dtype, tokens: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """[T, 2, 40] and [T, 2, 24], strided views of one projection."""
    generator = torch.Generator().manual_seed(3)
    fused = (3 * torch.randn(tokens, 2 * 64, generator=generator)).to(dtype)
    key, value = fused.split([80, 48], dim=1)
    return key.unflatten(1, (2, 40)), value.unflatten(1, (2, 24))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_tokens_land_in_their_slots_and_nowhere_else(
    kernels: Kernels, dtype: torch.dtype, layout: str
) -> None:
    """Slot -1 and rows past the slots write nothing, even where they hold NaN."""
    key, value = rows(dtype, 8)
    key[2], value[2], key[6:], value[6:] = torch.nan, torch.nan, torch.nan, torch.nan
    cache = poisoned((5, 32, 2, 64), dtype, layout)
    slots = torch.tensor([100, 0, -1, 31, 32, 159])
    kernels.write(key, value, cache[..., :40], cache[..., 40:], slots, 1.0, 1.0)
    flat = cache.reshape(160, 2, 64)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            assert torch.equal(flat[slot, :, :40], key[token])
            assert torch.equal(flat[slot, :, 40:], value[token])
    untouched = torch.ones(160, dtype=torch.bool)
    untouched[slots[slots >= 0]] = False
    assert flat[untouched].isnan().all()
    assert flat[~untouched].isfinite().all()


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", [*FLOATS, *FP8])
def test_conversions_round_as_torch_does(
    kernels: Kernels, source: torch.dtype, target: torch.dtype
) -> None:
    """Every bfloat16 number, and noise, in each target type: the same bits as torch's cast."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    noise = torch.randn(1 << 14, generator=torch.Generator().manual_seed(1))
    scaled = noise * torch.logspace(-12, 5, 1 << 14)
    numbers = torch.cat([every.float(), scaled]).to(source)
    key = numbers.view(-1, 1, 64)
    cache = torch.zeros(len(key), 1, 1, 128).to(target)
    kernels.write(key, key, cache[..., :64], cache[..., 64:], torch.arange(len(key)), 1.0, 0.5)
    for stored, scale in ((cache[..., :64], 1.0), (cache[..., 64:], 0.5)):
        wanted = key.float()[:, None]
        if target in FP8:
            limit = torch.finfo(target).max
            wanted = (wanted / scale).clamp(-limit, limit)
        wanted = wanted.to(target)
        number = ~wanted.float().isnan()
        assert torch.equal(number, ~stored.float().isnan())
        assert torch.equal(stored.float()[number], wanted.float()[number])
        assert torch.equal(bits(stored.float()[number]), bits(wanted.float()[number]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_int8_rows_bring_their_own_scales(kernels: Kernels, dtype: torch.dtype) -> None:
    """The largest number of a token and head becomes 127; what is read back is half a step off."""
    key, value = rows(dtype)
    key[3, 1] = 0
    cache = torch.zeros(2, 32, 2, 64, dtype=torch.int8)
    scales = [torch.full((2, 32, 2), torch.nan) for _ in range(2)]
    slots = torch.tensor([5, 63, -1, 0, 33, 40])
    kernels.write(key, value, cache[..., :40], cache[..., 40:], slots, *scales)
    kept = slots >= 0
    for source, part, scale in ((key, slice(0, 40), scales[0]), (value, slice(40, 64), scales[1])):
        stored = cache.view(64, 2, 64)[slots[kept], :, part].float()
        each = scale.view(64, 2)[slots[kept]]
        wanted = source[kept].float()
        torch.testing.assert_close(each, (wanted.abs().amax(-1) / 127).clamp(min=1e-10))
        assert ((stored * each[..., None] - wanted).abs() <= each[..., None] * 0.5001).all()
        assert stored[wanted.abs().amax(-1) > 0].abs().amax(-1).eq(127).all()
    assert int(scales[0].isnan().sum()) == (64 - int(kept.sum())) * 2


def test_no_slots_is_nothing(kernels: Kernels) -> None:
    """An empty slot mapping leaves the cache alone."""
    key, value = rows(torch.float32)
    cache = poisoned((1, 32, 2, 64), torch.float32, "NHD")
    none = torch.zeros(0, dtype=torch.int64)
    kernels.write(key, value, cache[..., :40], cache[..., 40:], none, 1.0, 1.0)
    assert cache.isnan().all()
