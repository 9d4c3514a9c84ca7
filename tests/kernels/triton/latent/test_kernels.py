"""The Triton kernels of latent attention where cases do not reach: bytes, tiles, far addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from attnctl.exits import InputError
from attnctl.kernels.triton.latent.call import decode_launches, sparse_launches
from attnctl.kernels.triton.latent.launch import latent_tiles, run
from attnctl.kernels.triton.latent.pick import CHUNK, PIECE, pick_launches
from attnctl.kernels.triton.latent.prefill_call import prefill_tiles
from attnctl.kernels.triton.latent.scatter_rows import scatter_rows
from attnctl.kernels.triton.latent.tile import widen_fp8
from attnctl.kernels.triton.launch import Device, Tiles
from attnctl.latent_runtime import packed_batch
from attnctl.ops.indexer import pick_topk
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.ops.packed_rows import pack_rows
from attnctl.runtime import Metadata, open_backend
from tests.kernels.triton.batches import DEVICE

PARAMS = Latent(scale=0.2, kv_lora_rank=32)


@triton.jit
def widen_kernel(BYTES, OUT, FORMAT: tl.constexpr):  # noqa: N803
    place = tl.arange(0, 256)
    tl.store(OUT + place, widen_fp8(tl.load(BYTES + place), FORMAT))


@pytest.mark.parametrize(("number", "dtype"), [(1, torch.float8_e4m3fn), (2, torch.float8_e5m2)])
def test_every_finite_byte_of_either_format_is_widened_exactly(number: int, dtype) -> None:
    """All 256, subnormals and both zeros included; infinities of E5M2 stay what they are."""
    stored = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    out = torch.empty(256, dtype=torch.float16, device=DEVICE)
    widen_kernel[(1,)](stored, out, number)
    wanted = stored.view(dtype).to(torch.float16)
    known = ~wanted.isnan()
    assert int(known.sum()) == (254 if number == 1 else 250)
    assert torch.equal(out[known].view(torch.int16), wanted[known].view(torch.int16))


def batch(queries: int, length: int, page: int = 16) -> Metadata:
    """One sequence whose pages lie in reverse."""
    pages = -(-length // page)
    return packed_batch(
        torch.tensor([0, queries], device=DEVICE),
        torch.tensor([length], device=DEVICE),
        torch.arange(pages, device=DEVICE).flip(0)[None],
        torch.zeros(0, device=DEVICE),
        max_query_len=queries,
        max_seq_len=length,
    )


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).half().to(DEVICE)


# a device with this many units wants as many segments; the keys decide how many it gets
UNITS = (1, 4, 64)


@pytest.mark.parametrize("keys", [16, 32])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("length", [16, 129, 300])
def test_tiles_and_segments_change_no_output(keys: int, units: int, length: int) -> None:
    """One segment or many, some of them empty: both forms agree with the specification."""
    metadata, cache = batch(2, length), drawn(-(-length // 16), 16, 40, seed=1)
    query = drawn(2, 3, 40, seed=2)
    device, tiles = Device("interpreter", units, 131072), Tiles(16, keys, 4, 1)
    slots = torch.arange(length, device=DEVICE).flip(0).int()[None].repeat(2, 1)
    slots[1, ::3] = -1
    places = (metadata.block_table, metadata.query_start_loc, metadata.seq_lens)
    for form in ("dense", "sparse"):
        out, lse = torch.full_like(query[..., :32], torch.nan), torch.full((2, 3), torch.nan)
        lse = lse.to(DEVICE)
        if form == "dense":
            launches = decode_launches(query, cache, metadata, PARAMS, out, lse, device, tiles)
            exact = latent_attention(query, cache, *places, PARAMS)
        else:
            launches = sparse_launches(
                query, cache, slots, metadata, PARAMS, out, lse, device, tiles
            )
            exact = sparse_latent_attention(query, cache, slots, PARAMS)
        assert (len(launches) == 2) is (units > 2 and length >= 128)
        for launch in launches:
            run(launch)
        torch.testing.assert_close(out.double(), exact[0], rtol=0, atol=2e-3)
        torch.testing.assert_close(lse.double(), exact[1], rtol=0, atol=2e-3)


@pytest.mark.parametrize("rank", [64, 128, 512])
def test_float32_logits_summed_in_parts_are_those_of_one_sum(rank: int) -> None:
    """As NVIDIA's kernels are compiled: products by tf32x3, of 64 columns at a time."""
    metadata = batch(2, 70)
    cache, query = drawn(5, 16, rank + 16, seed=1).float(), drawn(2, 3, rank + 16, seed=2).float()
    params = Latent(scale=0.05, kv_lora_rank=rank)
    out, lse = torch.full_like(query[..., :rank], torch.nan), query.new_full((2, 3), torch.nan)
    device, tiles = Device("interpreter", 1, 131072), Tiles(16, 16, 4, 1)
    for launch in decode_launches(query, cache, metadata, params, out, lse, device, tiles):
        run(launch._replace(constants={**launch.constants, "PRECISION": "tf32x3"}))
    places = (metadata.block_table, metadata.query_start_loc, metadata.seq_lens)
    exact = latent_attention(query, cache, *places, params)
    torch.testing.assert_close(out.double(), exact[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(lse.double(), exact[1], rtol=0, atol=2e-6)


def pick(logits, metadata: Metadata, topk: int, out: torch.Tensor, cut: bool) -> None:
    for launch in pick_launches(logits, metadata, topk, out, cut=cut):
        run(launch)


@pytest.mark.parametrize("columns", [63, PIECE - 1, PIECE + 1, 2 * PIECE + 7])
@pytest.mark.parametrize("topk", [1, 64, PIECE + 2])
def test_rows_cut_in_pieces_give_the_same_picks(columns: int, topk: int) -> None:
    """Contested last places across the pieces' edges, lists longer than a piece or the context."""
    generator = torch.Generator().manual_seed(columns + topk)
    values = torch.tensor([-3.5, -0.0, 0.0, 1e-30, 2.0])
    logits = values[torch.randint(0, 5, (2, columns), generator=generator)].to(DEVICE)
    logits[0, columns - 1] = -torch.inf  # not visible to the first of the two query tokens
    out = torch.full((2, topk), -2, dtype=torch.int32, device=DEVICE)
    pick(logits, batch(2, columns), topk, out, True)
    assert torch.equal(out, pick_topk(logits, topk))


@pytest.mark.parametrize("columns", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
@pytest.mark.parametrize("topk", [1, 64, CHUNK - 2])
def test_the_pick_is_the_specification_on_ties_zeros_and_any_sign(columns: int, topk: int) -> None:
    """Few distinct values, so that the last place is always contested; -0 and 0 are equal."""
    generator = torch.Generator().manual_seed(columns + topk)
    values = torch.tensor([-3.5, -1.0, -0.0, 0.0, 1e-30, 2.0, 1e30])
    logits = values[torch.randint(0, 7, (2, columns), generator=generator)].to(DEVICE)
    logits[0, columns - 1] = -torch.inf  # not visible to the first of the two query tokens
    out = torch.full((2, topk), -2, dtype=torch.int32, device=DEVICE)
    pick(logits, batch(2, columns), topk, out, False)
    assert torch.equal(out, pick_topk(logits, topk))


def test_the_pick_of_random_logits_is_what_sorting_gives() -> None:
    """Distinct logits of every magnitude."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 1500, generator=generator)
    logits = (logits * 10 ** (8 * torch.rand(1, 1500, generator=generator) - 4)).to(DEVICE)
    out = torch.full((1, 300), -2, dtype=torch.int32, device=DEVICE)
    pick(logits, batch(1, 1500), 300, out, False)
    assert torch.equal(out, pick_topk(logits, 300))


# 2^31 elements lie just below page 7767 of this stride, which is no power of two
STRIDE, FAR = 276480, (7766, 7767, 7768)


def far_cache(file: Path) -> torch.Tensor:
    """[7769, 16, 40] over a sparse file: only the pages that are written take any room."""
    size = FAR[-1] * STRIDE + 16 * 40
    if DEVICE == "cpu":
        whole = torch.from_file(str(file), shared=True, size=size, dtype=torch.float16)
    else:
        whole = torch.empty(size, dtype=torch.float16, device=DEVICE)
    return whole.as_strided((FAR[-1] + 1, 16, 40), (STRIDE, 40, 1))


def test_rows_beyond_2_31_elements_are_written_and_read_in_both_forms(tmp_path: Path) -> None:
    """The same output as with the same rows at the start of a small cache."""
    cache, rows = far_cache(tmp_path / "cache"), drawn(48, 40, seed=3)
    position = torch.arange(48, device=DEVICE)
    pages = torch.tensor(FAR, device=DEVICE)
    scatter_rows(rows, cache, pages[position // 16] * 16 + position % 16)
    assert torch.equal(cache[FAR[1]], rows[16:32])
    query = drawn(1, 3, 40, seed=4)
    outs = []
    for held, first in ((cache, pages), (rows.view(3, 16, 40), torch.arange(3, device=DEVICE))):
        metadata = packed_batch(
            torch.tensor([0, 1], device=DEVICE),
            torch.tensor([45], device=DEVICE),
            first[None],
            torch.zeros(0, device=DEVICE),
            max_query_len=1,
            max_seq_len=45,
        )
        slots = (first[position // 16] * 16 + position % 16)[None, :45].int()
        for make in ("dense", "sparse"):
            out = torch.full_like(query[..., :32], torch.nan)
            if make == "dense":
                launches = decode_launches(query, held, metadata, PARAMS, out, None)
            else:
                launches = sparse_launches(query, held, slots, metadata, PARAMS, out, None)
            for launch in launches:
                run(launch)
            outs.append(out)
    assert all(torch.equal(out, outs[0]) for out in outs[1:])
    assert outs[0].isfinite().all()


NVIDIA = Device("sm_86", 84, 101376)


def test_float32_logits_in_parts_of_64_columns_are_the_specification_s() -> None:
    """160 columns in a block of 256: a part that is half there and one that is not."""
    params = Latent(scale=0.2, kv_lora_rank=160)
    query, cache = drawn(3, 5, 168, seed=5).float(), drawn(3, 16, 168, seed=6).float()
    metadata = batch(3, 40)
    out, lse = torch.full((3, 5, 160), torch.nan), torch.full((3, 5), torch.nan)
    out, lse = out.to(DEVICE), lse.to(DEVICE)
    first, *rest = decode_launches(query, cache, metadata, params, out, lse, NVIDIA)
    assert first.constants["PRECISION"] == "tf32x3"
    for launch in (first, *rest):
        run(launch)
    places = metadata.block_table, metadata.query_start_loc, metadata.seq_lens
    wanted, top = latent_attention(query, cache, *places, params)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(lse.double(), top, rtol=1e-5, atol=1e-6)


def test_float32_logits_over_packed_rows_take_the_scale_of_their_columns() -> None:
    """Four scales a row, far apart, over eight parts."""
    params = Latent(scale=0.05, kv_lora_rank=512)
    rows = drawn(48, 576, seed=7).float()
    rows[:, :512] *= torch.tensor([0.01, 1.0, 30.0, 0.1], device=DEVICE).repeat_interleave(128)
    cache = pack_rows(rows[:, :512], rows[:, 512:]).view(3, 16, 656)
    query, metadata = drawn(2, 3, 576, seed=8).float(), batch(2, 48)
    slots = torch.arange(48, device=DEVICE).int().expand(2, 48).contiguous()
    out = torch.full((2, 3, 512), torch.nan, device=DEVICE)
    for launch in sparse_launches(query, cache, slots, metadata, params, out, None, NVIDIA):
        run(launch)
    wanted, _ = sparse_latent_attention(query, cache, slots, params)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-4, atol=1e-4)


def test_tiles_shrink_until_they_fit_and_the_smallest_is_named_where_none_does() -> None:
    """64 KiB holds 512 + 64 in two bytes, not in four."""
    small = Device("gfx942", 304, 65536)
    assert latent_tiles(small, 128, 512, 64, 2) == Tiles(16, 32, 4, 1)
    assert latent_tiles(Device("sm_100", 148, 232448), 128, 512, 64, 2) == Tiles(64, 32, 8, 2)
    assert latent_tiles(Device("sm_90", 132, 232448), 128, 512, 64, 2) == Tiles(64, 64, 8, 2)
    assert latent_tiles(Device("gfx1100", 96, 65536), 128, 512, 64, 2) == Tiles(16, 16, 8, 1)
    assert latent_tiles(Device("gfx950", 256, 163840), 128, 512, 64, 4) == Tiles(16, 16, 4, 2)
    with pytest.raises(ValueError, match="need 74752 bytes"):
        latent_tiles(small, 16, 512, 64, 4)
    with pytest.raises(ValueError, match="shared memory"):
        prefill_tiles(Device("tiny", 1, 1024), 192, 128, 2)


def test_float32_rows_of_nvidia_fit_a_block_of_99_kib_because_the_query_comes_in_parts() -> None:
    """73728 bytes when compiled for sm_80 to sm_120, 40960 with 16 keys; 8 warps spill least."""
    for arch, bytes_a_block in (("sm_80", 166912), ("sm_86", 101376), ("sm_120", 101376)):
        assert latent_tiles(Device(arch, 108, bytes_a_block), 16, 512, 64, 4) == Tiles(16, 32, 8, 1)
    assert latent_tiles(Device("sm_75", 40, 65536), 128, 512, 64, 4) == Tiles(16, 16, 8, 1)
    with pytest.raises(ValueError, match=r"sm_75: rows of 1024 \+ 64 need 75776 bytes"):
        latent_tiles(Device("sm_75", 40, 65536), 128, 1024, 64, 4)


@pytest.mark.parametrize("name", ["TRITON_MLA_SPARSE", "CPU_MLA_SPARSE"])
def test_the_debug_check_refuses_a_slot_beyond_the_cache(name: str) -> None:
    """Asked for, it is an error before anything runs; not asked for, the slot counts as -1."""
    backend, metadata = open_backend(name), batch(1, 16)
    cache, query = drawn(1, 16, 40), drawn(1, 2, 40)
    slots = torch.tensor([[3, 16]], dtype=torch.int32)
    with pytest.raises(InputError, match="slot 16 of query token 0"):
        backend.forward(query, cache, metadata, slots, PARAMS, check=True)
    out = backend.forward(query, cache, metadata, slots, PARAMS)
    exact, _ = sparse_latent_attention(query, cache, slots, PARAMS)
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=2e-3)
