"""The tiles of latent attention that a tune tries, and those that could not load."""

from __future__ import annotations

import pytest

from attnctl.kernels.triton.latent.launch import latent_tiles
from attnctl.kernels.triton.launch import Device
from attnctl.ops.catalog import case_of, layer_for
from attnctl.tune.measure.latent_settings import latent_settings
from attnctl.tune.settings import Limits, Work

Tile = tuple[int, ...]
NAMES = ("rows", "keys", "warps", "stages")
WIDE = {"heads": 128, "lora": 512, "rope": 64}
MINI_CPM = {"heads": 40, "lora": 256, "rope": 32}


def tiles(op: str, arch: str, kib: int, heads: int, lora: int, rope: int, **more: str) -> set[Tile]:
    """rows, keys, warps and stages of each tile that is tried."""
    case = case_of(op, {"heads": heads, "lora": lora, "rope": rope, **more})
    work = Work(layer=layer_for(case), phase="decode", batch=2, context=2048, query=1, page=64)
    limits = Limits(arch=arch, units=100, shared_memory_bytes=kib << 10)
    device = Device(arch, 100, kib << 10)
    own = latent_tiles(device, heads, lora, rope, 2, packed="kv_cache_dtype" in more)
    return {
        tuple(int(one.knobs.get(name, getattr(own, name))) for name in NAMES)
        for one in latent_settings(work, limits)
    }


@pytest.mark.parametrize("op", ["mla", "mla_sparse"])
@pytest.mark.parametrize(
    ("arch", "kib", "widths", "bad", "good"),
    [
        ("sm_80", 163, WIDE, (64, 64, 8, 1), {(32, 64, 4, 1), (64, 32, 8, 1)}),
        ("sm_100", 227, WIDE, (64, 64, 8, 2), {(64, 32, 8, 2), (64, 32, 8, 3), (64, 64, 8, 1)}),
        ("sm_120", 99, MINI_CPM, (64, 64, 8, 1), {(32, 64, 4, 1), (64, 32, 8, 1), (16, 128, 4, 1)}),
    ],
)
def test_a_tile_that_compiled_to_more_shared_memory_than_there_is_is_not_tried(
    op: str, arch: str, kib: int, widths: dict[str, int], bad: Tile, good: set[Tile]
) -> None:
    """Those beside it that just fit are: triton 3.6 and 3.7 compiled each for these targets."""
    tried = tiles(op, arch, kib, **widths)
    assert bad not in tried
    assert good <= tried
    assert bad in tiles(op, arch, 400, **widths)


def test_rows_that_are_widened_take_less_on_blackwell() -> None:
    """The kernel widens FP8 rows on their way, and keeps no second copy of them."""
    packed = tiles("mla_sparse", "sm_100", 227, **WIDE, kv_cache_dtype="fp8_ds_mla")
    assert (64, 64, 8, 2) in packed
