"""Calls of the uncompressed form: tiles, launches on Hopper or elsewhere, and launches kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnctl.kernels.triton.latent.call import dense_query
from attnctl.kernels.triton.latent.launch import RDNA, latent_device, precision, run
from attnctl.kernels.triton.latent.prefill import mla_prefill_kernel
from attnctl.kernels.triton.launch import LOG2E, Device, Launch, Tiles, power, split_width
from attnctl.kernels.triton.paged.prefill_call import packed_launch
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.runtime import Metadata


def prefill_tiles(gpu: Device, width: int, width_v: int, item_bytes: int) -> Tiles:
    """The largest tile that fits the shared memory. ValueError where the smallest does not."""
    low, high = split_width(width)
    wide, values = (low + high) * item_bytes, power(width_v) * item_bytes
    rows, keys, stages = (128, 64, 2) if item_bytes <= 2 else (32, 32, 2)
    if gpu.arch == "sm_90":
        # on an H200, triton 3.6: benchmarks/results/
        stages = 3
    elif gpu.arch.startswith(RDNA):
        # no card was there to time: what spills little when compiled
        rows, keys, stages = 32, 32, 1
    while True:
        need = rows * wide + stages * keys * (wide + values) + rows * keys * item_bytes
        if need <= gpu.shared_memory_bytes:
            return Tiles(rows, keys, 8 if rows >= 128 else 4, stages)
        if rows > 64:
            rows //= 2
        elif stages > 1:
            stages -= 1
        elif keys > 16:
            keys //= 2
        elif rows > 16:
            rows //= 2
        else:
            raise ValueError(
                f"{gpu.arch}: keys of {width} and values of {width_v} need {need} bytes of shared "
                f"memory, a block has {gpu.shared_memory_bytes}"
            )


def prefill_launch(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    key_start_loc: Tensor,
    metadata: Metadata,
    factor: float,
    causal: bool,
    out: Tensor,
    lse: Tensor,
    gpu: Device | None = None,
    tiles: Tiles | None = None,
    groups: bool | None = None,
    counts: Callable[[], Tensor] | None = None,
) -> Launch:
    """query: [T, H, D], keys: [S, H, D], values: [S, H, Dv], out: [T, H, Dv], lse: [T, H].

    groups: False keeps to the portable kernel where Hopper's would take the batch. counts: gives
    that one's counters, new ones where it is None.
    """
    gpu = gpu or latent_device(query.device)
    if tiles is None and groups is not False:
        tensors, starts = (query, keys, values, out, lse), metadata.query_start_loc
        parts = split_width(query.shape[2])
        longest = metadata.max_query_len
        rest = (parts, factor, causal, longest, gpu, counts)
        hopper = packed_launch(tensors, starts, key_start_loc, *rest)
        if hopper is not None:
            return hopper
    tokens, heads, width = query.shape
    width_v, item = values.shape[2], query.element_size()
    tiles = tiles or prefill_tiles(gpu, width, width_v, item)
    low, high = split_width(width)
    sequences = metadata.seq_lens.shape[0]
    tensors = (query, keys, values, out, lse)
    strides = tuple(x.stride(dim) for x in tensors for dim in (0, 1))
    return Launch(
        mla_prefill_kernel,
        (tokens // tiles.rows + sequences, heads),
        (*tensors, metadata.query_start_loc, key_start_loc, *strides, factor, sequences),
        {
            "BLOCK_M": tiles.rows,
            "TILE": tiles.keys,
            "D": width,
            "D_LOW": low,
            "D_HIGH": high,
            "DV": width_v,
            "V_BLOCK": power(width_v),
            "CAUSAL": causal,
            "POSITIVE": factor > 0,
            "INTERPRET": query.device.type == "cpu",
            "PRECISION": precision(gpu, item),
            "num_warps": tiles.warps,
            "num_stages": tiles.stages,
        },
    )


def prefill_attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    key_start_loc: Tensor,
    metadata: Metadata,
    scale: float,
    *,
    causal: bool,
    max_keys: int,
    kept: Relaunches | None = None,
) -> tuple[Tensor, Tensor]:
    """attnctl.kernels.latent.prefill.Attend: out in the query's dtype, lse float32.

    kept: where the launches of batches of one form are kept for the next layer.
    """
    tokens, heads, _ = query.shape
    out = query.new_empty(tokens, heads, values.shape[2])
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=query.device)
    if not tokens:
        return out, lse
    query = dense_query(query)
    factor, starts = scale * LOG2E, metadata.query_start_loc
    tensors = (query, keys, values, key_start_loc, metadata, factor, causal, out, lse)
    device = None if kept is None else kept.place(query)
    if kept is None or device is None:
        run(prefill_launch(*tensors))
        return out, lse
    # with one tensor for both, which of them an argument is could not be said
    other = None if key_start_loc is starts else key_start_loc
    whole = (query, keys, values, out, lse, starts, other)
    bounds = (device, factor, causal, metadata.max_query_len, metadata.seq_lens.shape[0])
    kept.run(
        bounds,
        whole,
        lambda scratch: [prefill_launch(*tensors, counts=scratch.counts)],
    )
    return out, lse
