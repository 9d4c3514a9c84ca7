"""Which kernel runs, with which tiles: worked out from shapes alone."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.kernels.triton.launch import Device, padded, split_width
from attnctl.kernels.triton.paged.plan import Knobs, Shape, knobs_for, plan

H200 = Device("sm_90", 132, 232448)
MI300 = Device("gfx942", 304, 65536)
LLAMA = Shape(
    tokens=64,
    sequences=64,
    heads=32,
    kv_heads=8,
    width=128,
    value_width=128,
    page=16,
    item_bytes=2,
    cache_bytes=2,
    max_query_len=1,
    max_seq_len=8192,
)


def shape(**changes: int) -> Shape:
    return msgspec.structs.replace(LLAMA, **changes)


def test_the_untuned_threshold_is_128_programs_and_16_segments() -> None:
    """The field's constants: below 128 programs at most 16 segments, from there on one."""
    assert (Knobs().min_programs, Knobs().segments) == (128, 16)
    assert plan(shape(sequences=16), MI300, Knobs()).segments == 1
    assert plan(shape(sequences=1), MI300, Knobs()).segments == 16
    assert plan(shape(sequences=15), MI300, Knobs()).segments == 4


def test_segments_fill_the_units_and_keep_enough_keys() -> None:
    """More segments for fewer programs, none that would be nearly empty, a power of two always."""
    tuned = knobs_for("sm_90")
    assert plan(shape(sequences=1), H200, tuned).segments == 32
    assert plan(shape(sequences=16), H200, tuned).segments == 2
    assert plan(shape(sequences=64), H200, tuned).segments == 1
    assert plan(shape(sequences=1, max_seq_len=512), H200, tuned).segments == 4
    assert plan(shape(sequences=1, max_seq_len=1), H200, tuned).segments == 1


def test_query_tokens_times_heads_fill_a_decode_tile() -> None:
    """4 tokens x 4 heads in 16 rows; 16 x 8 in 128; a group of 71 in 128, one of 144 in two."""
    assert plan(shape(max_query_len=4), H200, Knobs()).rows == 16
    assert plan(shape(max_query_len=16, kv_heads=4), H200, Knobs()).rows == 128
    falcon = plan(shape(heads=71, kv_heads=1), H200, Knobs())
    assert (falcon.rows, falcon.heads, falcon.parts) == (128, 71, 1)
    wide = plan(shape(heads=144, kv_heads=1), H200, Knobs())
    assert (wide.rows, wide.heads, wide.parts) == (128, 128, 2)


def test_long_queries_go_to_prefill_and_short_ones_on_a_long_context_are_cut() -> None:
    """17 tokens and more: the prefill kernel, unless its few tiles would leave the device idle."""
    long = plan(shape(tokens=4096, sequences=4, max_query_len=1024), H200, Knobs())
    assert long.kernel == "prefill"
    few = shape(tokens=32, sequences=1, max_query_len=32, max_seq_len=65536, kv_heads=2, heads=8)
    assert plan(few, H200, knobs_for("sm_90")).kernel == "decode"
    assert plan(few, H200, knobs_for("sm_90")).segments > 8


def test_the_prefill_grid_has_room_for_every_way_tokens_fall_into_sequences() -> None:
    """Sequence b starts at tile starts[b] / BLOCK_Q + b, which never passes the grid's end."""
    chosen = plan(shape(tokens=100, sequences=7, max_query_len=40), H200, Knobs())
    block_q = chosen.rows // chosen.heads
    for lengths in (
        (40, 10, 10, 10, 10, 10, 10),
        (34, 1, 1, 1, 1, 31, 31),
        (40, 40, 20, 0, 0, 0, 0),
    ):
        starts = [sum(lengths[:b]) for b in range(8)]
        tiles = [starts[b] // block_q + b for b in range(8)]
        needed = [-(-length // block_q) for length in lengths]
        assert all(b - a >= n for a, b, n in zip(tiles, tiles[1:], needed, strict=False))
        assert tiles[-1] <= chosen.query_tiles


@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (8, (16, 0)), (16, (16, 0)), (32, (32, 0)), (40, (32, 16)), (72, (64, 16)), (80, (64, 16)),
        (96, (64, 32)), (112, (128, 0)), (128, (128, 0)), (160, (128, 32)), (192, (128, 64)),
        (224, (256, 0)), (256, (256, 0)), (512, (512, 0)), (576, (512, 64)),
    ],
)  # fmt: skip
def test_widths_are_cut_where_that_saves_columns(width: int, parts: tuple[int, int]) -> None:
    """A low and a high power of two of at least 16, unless padding costs no more."""
    assert split_width(width) == parts
    assert padded(width) >= width


@pytest.mark.parametrize("arch", ["sm_90", "sm_80", "sm_120", "gfx942"])
@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_tiles_shrink_until_they_fit_the_shared_memory(arch: str, width: int) -> None:
    """The estimate stays within 101,376 bytes of a small NVIDIA block and 65,536 of an AMD one."""
    limit = 65536 if arch.startswith("gfx") else 101376
    device = Device(arch, 100, limit)
    for queries in (1, 1024):
        sizes = shape(width=width, value_width=width, max_query_len=queries, tokens=64 * queries)
        chosen = plan(sizes, device, knobs_for(arch))
        keys = chosen.tile * 2 * width * 2 * chosen.stages
        rows = chosen.rows * width * 2 + chosen.rows * chosen.tile * 2
        assert keys + rows <= limit or (chosen.tile, chosen.stages) == (16, 1)


def test_descriptors_want_whole_boxes_of_an_unquantised_cache() -> None:
    """Pages of 64 and more on a tuned arch; not pages of 16, FP8 or an arch without them."""
    tuned = knobs_for("sm_90")
    prompt = {"tokens": 4096, "sequences": 1, "max_query_len": 4096}
    assert plan(shape(page=64, **prompt), H200, tuned).descriptors
    assert not plan(shape(page=16, **prompt), H200, tuned).descriptors
    assert not plan(shape(page=64, cache_bytes=1, **prompt), H200, tuned).descriptors
    assert not plan(shape(page=64, **prompt), MI300, knobs_for("gfx942")).descriptors


def test_hoppers_own_kernel_wants_widths_that_it_is_written_for_and_whole_pages() -> None:
    """128 or 192 and 128 columns in 16 bits, pages that make tiles; the portable tiles stand by."""
    tuned = knobs_for("sm_90")
    prompt = {"tokens": 4096, "sequences": 1, "max_query_len": 4096}
    chosen = plan(shape(page=16, **prompt), H200, tuned)
    assert chosen.groups
    assert (chosen.rows, chosen.tile) == (64, 64)
    assert plan(shape(page=64, width=192, **prompt), H200, tuned).groups
    assert not plan(shape(page=48, **prompt), H200, tuned).groups
    assert not plan(shape(page=16, width=64, value_width=64, **prompt), H200, tuned).groups
    assert not plan(shape(page=16, cache_bytes=1, **prompt), H200, tuned).groups
    assert not plan(shape(page=16, **prompt), MI300, knobs_for("gfx942")).groups
    assert not plan(shape(page=16), H200, tuned).groups
    off = msgspec.structs.replace(tuned, groups=False)
    assert not plan(shape(page=16, **prompt), H200, off).groups


def test_a_batch_of_many_short_sequences_is_left_to_tiles_that_hold_the_heads_of_a_group() -> None:
    """Short prompts, and single tokens beside a long one; few of them do not matter."""
    tuned = knobs_for("sm_90")
    assert plan(shape(tokens=2048, sequences=8, max_query_len=256), H200, tuned).groups
    assert not plan(shape(tokens=512, sequences=8, max_query_len=64), H200, tuned).groups
    assert not plan(shape(tokens=8192 + 63, max_query_len=8192), H200, tuned).groups
    assert plan(shape(tokens=8192 + 3, sequences=4, max_query_len=8192), H200, tuned).groups
