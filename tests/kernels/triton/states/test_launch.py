"""How steps of states and the convolution are launched."""

from __future__ import annotations

import msgspec
import torch
import triton

from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.kernels.triton.states import gdn, mamba1, short_conv
from attnctl.kernels.triton.states.launch import has_ptx
from attnctl.kernels.triton.states.rows import blocks, power_of_2
from attnctl.ops.state_cases import case
from attnctl.ops.state_inputs import build
from tests.ops.state_batches import packed


def test_sizes_are_those_that_triton_would_take() -> None:
    """Its own functions cost a launch microseconds."""
    for count in range(1, 300):
        assert power_of_2(count) == triton.next_power_of_2(count)
        assert blocks(count, 32) == triton.cdiv(count, 32)


def test_few_states_share_tiles_among_more_warps_and_knobs_win() -> None:
    """One sequence of Qwen3-Next, and two; eight of Falcon Mamba, and nine."""
    assert gdn.STEP_TILES.taken(32 * 128 * 128, {}) == (1024, 8)
    assert gdn.STEP_TILES.taken(2 * 32 * 128 * 128, {}) == (1024, 1)
    assert mamba1.STEP_TILES.taken(8 * 8192 * 16, {}) == (512, 4)
    assert mamba1.STEP_TILES.taken(9 * 8192 * 16, {}) == (1024, 2)
    assert mamba1.STEP_TILES.taken(8 * 8192 * 16, {"warps": 2}) == (512, 2)


def test_ptx_is_for_nvidia_alone() -> None:
    """A tensor without memory stands on the target's device; a processor interprets."""
    for arch, wanted in (("sm_90", True), ("gfx942", False)):
        with standing_on(Device(arch, 132, 65536)):
            assert has_ptx(torch.device("meta")) is wanted
    assert has_ptx(torch.device("cpu")) is False


def test_taps_that_do_not_lie_on_eight_bytes_are_read_one_by_one() -> None:
    """The same outputs, to the bit, from a weight that is a view one element further on."""
    inputs = build(case("short_conv", queries="21", channels=40, weights="bfloat16")).inputs
    storage = torch.full((40 * 4 + 1,), torch.nan, dtype=torch.bfloat16)
    moved = storage[1:].view(40, 4).copy_(inputs.weight)
    assert moved.data_ptr() % 8
    assert inputs.weight.data_ptr() % 8 == 0
    outs = []
    for weight in (inputs.weight, moved):
        pool = torch.zeros(1, 3, 40, dtype=torch.bfloat16)
        out = torch.full((21, 40), torch.nan, dtype=torch.bfloat16)
        one = msgspec.structs.replace(inputs, weight=weight)
        short_conv.forward(one, pool, packed([21], [[0]], [False]), out)
        outs.append(out)
    assert torch.equal(outs[0], outs[1])
    assert not outs[0].isnan().any()
