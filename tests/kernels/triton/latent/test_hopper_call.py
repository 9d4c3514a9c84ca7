"""Which batches of latent attention the Hopper kernel takes, and how it cuts their keys."""

from __future__ import annotations

import pytest
import torch

from attnctl.kernels.triton.latent.call import decode_launches, sparse_launches
from attnctl.kernels.triton.latent.hopper_call import segments_for, takes
from attnctl.kernels.triton.launch import Device
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

HOPPER = Device("sm_90", 132, 232448)


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def batch(tokens: int, length: int) -> Metadata:
    return Metadata(
        query_start_loc=tensor(tokens + 1, dtype=torch.int32),
        seq_lens=tensor(tokens, dtype=torch.int32),
        block_table=tensor(tokens, 1024, dtype=torch.int32),
        slot_mapping=tensor(0, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=length,
    )


@pytest.mark.parametrize("width", [576, 320])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_rows_of_deepseek_and_mistral_are_taken(width: int, dtype) -> None:
    """512 + 64 and 256 + 64 columns, a dense cache or one whose pages lie apart."""
    query, cache = tensor(3, 16, width, dtype=dtype), tensor(9, 64, width, dtype=dtype)
    assert takes(query, cache, width - 64, HOPPER)
    assert takes(query, cache[::2], width - 64, HOPPER)


def test_other_devices_widths_dtypes_and_unaligned_rows_are_left_to_the_portable_kernels() -> None:
    """Each differs in one thing from a batch that is taken."""
    query, cache = tensor(3, 16, 576), tensor(9, 64, 576)
    assert not takes(query, cache, 512, Device("sm_100", 148, 232448))
    assert not takes(query, cache, 544, HOPPER)
    assert not takes(query, tensor(9, 64, 576, dtype=torch.float8_e4m3fn), 512, HOPPER)
    packed = tensor(9, 64, 656, dtype=torch.uint8)
    assert takes(query, packed, 512, HOPPER)
    assert not takes(query.half(), packed, 512, HOPPER)
    assert not takes(query[..., :320], packed, 256, HOPPER)
    assert not takes(query.float(), cache.float(), 512, HOPPER)
    assert not takes(query, tensor(9, 64, 577)[..., :576], 512, HOPPER)


@pytest.mark.parametrize(
    ("tokens", "heads", "keys", "segments"),
    [
        # as many segments as there are multiprocessors for
        (1, 16, 65536, 128),
        (16, 128, 65536, 4),
        # a full round already: cutting would start a second one
        (64, 128, 65536, 1),
        # too few keys to cut
        (1, 128, 64, 1),
        # more segments would leave more to the reduce pass than they save
        (1, 128, 4096, 32),
    ],
)
def test_keys_are_cut_so_that_the_rounds_of_the_device_are_full(
    tokens: int, heads: int, keys: int, segments: int
) -> None:
    """132 multiprocessors, one program of up to 64 heads on each."""
    programs = tokens * -(-heads // 64)
    assert segments_for(HOPPER, programs, keys, tokens * heads, 512) == segments


def test_no_segment_is_without_a_tile_and_each_launch_of_several_is_joined() -> None:
    """The grid names the parts of heads and the segments; the reduce pass knows as many."""
    params = Latent(scale=0.1, kv_lora_rank=512)
    query, cache, out = tensor(2, 128, 576), tensor(999, 64, 576), tensor(2, 128, 512)
    slots = tensor(2, 2048, dtype=torch.int32)
    found = sparse_launches(query, cache, slots, batch(2, 8192), params, out, None, HOPPER)
    assert [launch.kernel.__name__ for launch in found] == ["mla_hopper_kernel", "reduce_kernel"]
    parts, segments = found[0].grid
    assert parts == 4
    assert 1 < segments <= 2048 // 64
    assert found[1].constants["SEGMENTS"] == segments
    found = decode_launches(query, cache, batch(2, 64), params, out, None, HOPPER)
    assert [launch.grid for launch in found] == [(4, 1)]


@pytest.mark.parametrize(
    ("tokens", "heads", "form", "resident"),
    [
        # both parts of a token's heads read the same rows
        (16, 128, "dense", True),
        (16, 65, "dense", True),
        # rows come from memory once: nothing but their copies counts
        (128, 16, "dense", False),
        (128, 64, "dense", False),
        (64, 128, "sparse", True),
        (64, 16, "sparse", True),
        # unpacking takes the registers
        (1024, 128, "packed", False),
    ],
)
def test_the_query_stays_in_registers_where_the_matrix_unit_is_what_counts(
    tokens: int, heads: int, form: str, resident: bool
) -> None:
    """And then the sums let the next tile's logits go first."""
    params = Latent(scale=0.1, kv_lora_rank=512)
    query, out = tensor(tokens, heads, 576), tensor(tokens, heads, 512)
    if form == "dense":
        cache = tensor(999, 64, 576)
        found = decode_launches(query, cache, batch(tokens, 8192), params, out, None, HOPPER)
    else:
        packed = form == "packed"
        cache = tensor(999, 64, 656, dtype=torch.uint8) if packed else tensor(999, 64, 576)
        slots = tensor(tokens, 2048, dtype=torch.int32)
        found = sparse_launches(query, cache, slots, batch(tokens, 8192), params, out, None, HOPPER)
    assert found[0].constants["RESIDENT"] is resident


def test_the_reduce_pass_is_launched_early_behind_the_hopper_kernel_alone() -> None:
    """It waits for the end of the kernel before it; the portable kernels' reduce pass does not."""
    params = Latent(scale=0.1, kv_lora_rank=512)
    query, cache, out = tensor(2, 128, 576), tensor(999, 64, 576), tensor(2, 128, 512)
    for device, early in ((HOPPER, True), (Device("sm_100", 148, 232448), False)):
        found = decode_launches(query, cache, batch(2, 8192), params, out, None, device)
        assert found[1].constants["AWAIT"] is early
        assert ("launch_pdl" in found[1].constants) is early
