"""Which tiles the kernels of latent attention get: pure functions of shapes and the device.

Nothing here looks at a tensor's contents, so the same shapes always give the same launch and a CUDA
graph can hold it.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.launch import Device, Launch, Tiles, power
from attnctl.kernels.triton.relaunch import Scratch, new_counts

MAX_SEGMENTS = 32
"""Segments of a row's keys at most: what a program of the reduce pass holds in registers."""

SMALL_BLOCK_BYTES = 101376
"""Shared memory of consumer NVIDIA GPUs: compiled there, 32 rows of 512 + 64 take 1 KB more."""

RDNA = ("gfx11", "gfx12")
"""Archs with 256 registers a thread: the smallest tile spills least (smoke --compile-for)."""

LEAST_KEYS = 64
"""Keys of a segment at least: fewer cost more in the reduce pass than they save."""


def run(launch: Launch) -> None:
    launch.kernel[launch.grid](*launch.arguments, **launch.constants)


def latent_device(device: torch.device) -> Device:
    """The facts of a tensor's device; for the interpreter those of a small GPU.

    Its blocks have room for float32 rows of 512 + 64, which not every GPU's have.
    """
    if device.type == "cpu":
        return Device("interpreter", 4, 131072)
    if device.type == "xpu":
        facts = torch.xpu.get_device_properties(device)
        # Intel's GPU optimisation guide: at least 64 KiB of local memory a work-group
        return Device("xpu", facts.gpu_eu_count // 8, 65536)
    return device_of(device)


def precision(device: Device, item_bytes: int) -> str | None:
    """How float32 products are made: Triton's own choice, tf32, keeps three digits."""
    if item_bytes < 4:
        return None
    return "tf32x3" if device.arch.startswith("sm_") else "ieee"


def converts_e4m3(device: Device) -> bool:
    """Whether the device has an instruction that widens float8_e4m3fn (PTX ISA: sm_89 on)."""
    return device.arch.startswith("sm_") and int(device.arch[3:]) >= 89


def latent_tiles(
    device: Device, heads: int, rank: int, rope: int, item_bytes: int, *, packed: bool = False
) -> Tiles:
    """The largest tile that fits the shared memory. ValueError where the smallest does not.

    Up to 64 heads share a tile where the running sum leaves registers to the rest. packed: keys are
    widened from packed FP8 rows, which takes registers too.
    """
    if precision(device, item_bytes) == "tf32x3":
        return _parted_tiles(device, rank, rope, item_bytes, 16 if packed else 32)
    row = (power(rank) + (power(rope) if rope else 0)) * item_bytes
    rows = min(power(heads), 64 if item_bytes <= 2 else 16)
    keys, stages, warps = 32, 2, 0
    if device.shared_memory_bytes <= SMALL_BLOCK_BYTES:
        rows = min(rows, 16)
    if device.arch.startswith(RDNA):
        rows, keys, stages, warps = 16, 16, 1, 8
    elif device.arch == "sm_90" and item_bytes <= 2:
        # on an H200, triton 3.6: benchmarks/results/
        keys, warps = 64, 8
    elif device.arch.startswith("gfx") and (packed or item_bytes > 2):
        # compiled for gfx950 in float32, a thread with 32 keys spills 760 bytes
        keys = 16
    while True:
        weights = rows * keys * item_bytes
        needed = (rows + stages * keys) * row + weights
        if needed <= device.shared_memory_bytes:
            warps = warps or (8 if rows * power(rank) >= 64 * 256 else 4)
            return Tiles(rows, keys, warps, stages)
        if stages > 1:
            stages -= 1
        elif rows > 16:
            rows //= 2
        elif keys > 16:
            keys //= 2
        else:
            raise _too_wide(device, rank, rope, needed)


def _parted_tiles(device: Device, rank: int, rope: int, item_bytes: int, keys: int) -> Tiles:
    """Tiles of float32 rows whose logits are made of 64 columns at a time; keys: at most.

    The keys lie in shared memory whole, of the query only those columns, in two parts of a number.
    """
    rows, row = 16, power(rank) + (power(rope) if rope else 0)
    # with two stages all that a tile loads is there twice: on an H200 a quarter to a half faster
    needed = (keys * (power(rank) + row) + rows * (row + 64) + 2 * rows * keys) * item_bytes
    if needed <= device.shared_memory_bytes:
        return Tiles(rows, keys, 8, 2)
    while True:
        needed = (keys * power(rank) + 2 * rows * (64 + keys)) * item_bytes
        if needed <= device.shared_memory_bytes:
            # with 4 warps a thread spills up to 1.6 KB, compiled for sm_80 to sm_120
            return Tiles(rows, keys, 8, 1)
        if keys <= 16:
            raise _too_wide(device, rank, rope, needed)
        keys //= 2


def _too_wide(device: Device, rank: int, rope: int, needed_bytes: int) -> ValueError:
    return ValueError(
        f"{device.arch}: rows of {rank} + {rope} need {needed_bytes} bytes of shared memory, "
        f"a block has {device.shared_memory_bytes}"
    )


def segments_of(device: Device, programs: int, keys: int, fill: int = 1) -> int:
    """A power of two: how many segments give every unit `fill` programs, not twice that."""
    segments = 1
    most = min(MAX_SEGMENTS, keys // LEAST_KEYS)
    while segments * 2 <= most and programs * segments < fill * device.units:
        segments *= 2
    return segments


class Partial(msgspec.Struct, frozen=True):
    """What the segments of a launch leave to the reduce pass; None where there is one segment."""

    part: Tensor | None
    lse: Tensor | None
    segments: int


def partial_for(out: Tensor, segments: int, scratch: Scratch | None = None) -> Partial:
    tokens, heads, width = out.shape
    if segments == 1:
        return Partial(None, None, 1)
    scratch = scratch or Scratch(out.device, new_counts)
    return Partial(
        scratch.empty(tokens, heads, segments, width),
        scratch.empty(tokens, heads, segments),
        segments,
    )


def lse_strides(lse: Tensor | None) -> tuple[int, int]:
    return (0, 0) if lse is None else (lse.stride(0), lse.stride(1))


def reduce_launch(
    partial: Partial,
    out: Tensor,
    lse: Tensor | None,
    starts: Tensor,
    *,
    early: bool = False,
) -> Launch:
    """The pass that joins segments. early: its kernel waits for the end of the one before it."""
    from attnctl.kernels.triton.latent.reduce import reduce_kernel

    tokens, heads, width = out.shape
    # many segments are few programs' work: fewer columns each, so that more of them run
    columns = min(512 if partial.segments <= 8 else 128, power(width))
    return Launch(
        reduce_kernel,
        (tokens, heads, -(-width // columns)),
        (
            partial.part,
            partial.lse,
            out,
            lse,
            starts,
            out.stride(0),
            out.stride(1),
            *lse_strides(lse),
            starts.shape[0] - 1,
        ),
        {
            "HEADS": heads,
            "L": width,
            "COLUMNS": columns,
            "SEGMENTS": partial.segments,
            "SEGMENTS_BLOCK": power(partial.segments, 1),
            "AWAIT": early,
            "num_warps": 4,
            **({"launch_pdl": True} if early else {}),
        },
    )
