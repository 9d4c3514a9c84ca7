"""The lightning indexer in Triton: logits of every visible token, then the largest K in order.

The pick is a radix select over the logits' bits, 8 at a time: no sort, and because the last pass
walks the context in order, equal logits fall to the first and the list comes out ascending.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent_launch import latent_device, power, precision
from attnctl.kernels.triton.latent_tile import find_sequence, load_columns
from attnctl.kernels.triton.launch import Device, Launch
from attnctl.ops.indexer import Indexing, key_planes
from attnctl.ops.packed_rows import GROUP
from attnctl.runtime import Metadata

CHUNK = 1024
"""Logits that a program of the pick holds at a time."""


@triton.jit
def index_logits_kernel(
    Q,
    WEIGHTS,
    KEYS,
    SCALES,
    LOGITS,
    TABLE,
    STARTS,
    LENGTHS,
    stride_qt,
    stride_qh,
    stride_wt,
    stride_wh,
    stride_kn,
    stride_kp,
    stride_sn,
    stride_sp,
    stride_table,
    stride_logits,
    scale,
    sequences,
    columns,
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    FORMAT: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: (T, tiles of the context). -inf behind the query token, and in rows of no sequence."""
    token = tl.program_id(0).to(tl.int64)
    key = tl.program_id(1) * TILE + tl.arange(0, TILE)
    row = LOGITS + token * stride_logits
    visible = 0
    sequence = 0
    if token < tl.load(STARTS + sequences):
        sequence = find_sequence(STARTS, token, sequences)
        last = tl.load(STARTS + sequence + 1)
        visible = (tl.load(LENGTHS + sequence) - last + token + 1).to(tl.int32)
    if tl.program_id(1) * TILE >= visible:
        tl.store(row + key, tl.full([TILE], float("-inf"), tl.float32), mask=key < columns)
        return
    seen = key < visible
    table = TABLE + tl.cast(sequence, tl.int64) * stride_table
    page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
    offset = (key % PAGE).to(tl.int64)
    head = tl.arange(0, HEADS_BLOCK)
    real = head < HEADS
    rows_q = token * stride_qt + head.to(tl.int64) * stride_qh
    rows_k = page * stride_kn + offset * stride_kp
    WIDE: tl.constexpr = tl.float16 if FORMAT > 0 else Q.dtype.element_ty
    DTYPE: tl.constexpr = tl.float32 if INTERPRET else WIDE
    sums = tl.zeros([HEADS_BLOCK, TILE], tl.float32)
    for group in tl.static_range(GROUPS):
        q = load_columns(
            Q + group * 128, rows_q, real, min(D - group * 128, 128), D_BLOCK, FORMAT, DTYPE
        )
        k = load_columns(
            KEYS + group * 128, rows_k, seen, min(D - group * 128, 128), D_BLOCK, 1, DTYPE
        )
        k_scale = tl.load(
            SCALES + page * stride_sn + offset * stride_sp + group, mask=seen, other=0.0
        )
        sums += tl.dot(q, tl.trans(k), input_precision=PRECISION) * k_scale[None, :]
    weight = tl.load(
        WEIGHTS + token * stride_wt + head.to(tl.int64) * stride_wh, mask=real, other=0.0
    )
    logits = tl.sum(tl.maximum(sums, 0.0) * weight.to(tl.float32)[:, None], 0) * scale
    tl.store(row + key, tl.where(seen, logits, float("-inf")), mask=key < columns)


@triton.jit
def ordered_bits(value):
    """Unsigned integers in the order of the floats; both zeros are one."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def pick_kernel(
    LOGITS,
    OUT,
    STARTS,
    LENGTHS,
    stride_logits,
    stride_out,
    sequences,
    TOPK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Grid: (T,). Columns of the TOPK largest logits of a row, ascending, then -1."""
    token = tl.program_id(0).to(tl.int64)
    if token >= tl.load(STARTS + sequences):
        return
    sequence = find_sequence(STARTS, token, sequences)
    last = tl.load(STARTS + sequence + 1)
    visible = (tl.load(LENGTHS + sequence) - last + token + 1).to(tl.int32)
    row = LOGITS + token * stride_logits
    out = OUT + token * stride_out
    place = tl.arange(0, CHUNK)
    if visible <= TOPK:
        for start in range(0, TOPK, CHUNK):
            column = start + place
            tl.store(out + column, tl.where(column < visible, column, -1), mask=column < TOPK)
        return
    digits = tl.arange(0, 256)
    threshold = tl.full([1], 0, tl.uint32)
    need = TOPK
    for step in tl.static_range(4):
        counts = tl.zeros([256], tl.int32)
        for start in range(0, visible, CHUNK):
            inside = start + place < visible
            value = tl.load(row + start + place, mask=inside, other=0.0)
            bits = ordered_bits(value)
            if step > 0:
                inside = inside & ((bits >> (32 - 8 * step)) == threshold)
            digit = ((bits >> (24 - 8 * step)) & 255).to(tl.int32)
            counts += tl.histogram(digit, 256, mask=inside)
        # of each digit: how many logits have it or a larger one
        reach = tl.sum(counts, 0) - tl.cumsum(counts, 0) + counts
        chosen = tl.sum((reach >= need).to(tl.int32), 0) - 1
        need -= tl.sum(tl.where(digits > chosen, counts, 0), 0)
        threshold = (threshold << 8) | chosen.to(tl.uint32)
    written = 0
    equals = 0
    for start in range(0, visible, CHUNK):
        inside = start + place < visible
        bits = ordered_bits(tl.load(row + start + place, mask=inside, other=0.0))
        equal = (inside & (bits == threshold)).to(tl.int32)
        kept = (equal > 0) & (tl.cumsum(equal, 0) + equals <= need)
        take = ((inside & (bits > threshold)) | kept).to(tl.int32)
        target = written + tl.cumsum(take, 0) - 1
        tl.store(out + target, start + place, mask=take > 0)
        written += tl.sum(take, 0)
        equals += tl.sum(equal, 0)


def logits_launch(
    query: Tensor,
    weights: Tensor,
    cache: Tensor,
    metadata: Metadata,
    params: Indexing,
    logits: Tensor,
    gpu: Device | None = None,
) -> Launch:
    """query: [T, Hi, D], the last dimension dense. weights: [T, Hi]. logits: [T, columns]."""
    gpu = gpu or latent_device(query.device)
    tokens, heads, width = query.shape
    keys, scales = key_planes(cache)
    keys = keys.view(torch.uint8)
    fp8 = query.dtype is torch.float8_e4m3fn
    query = query.view(torch.uint8) if fp8 else query
    tile = 64 if query.element_size() <= 2 else 32
    columns = logits.shape[1]
    constants: dict[str, Any] = {
        "HEADS": heads,
        "HEADS_BLOCK": power(heads),
        "TILE": tile,
        "PAGE": cache.shape[1],
        "D": width,
        "D_BLOCK": power(min(width, GROUP)),
        "GROUPS": scales.shape[2],
        "FORMAT": 1 if fp8 else 0,
        "INTERPRET": query.device.type == "cpu",
        "PRECISION": precision(gpu, query.element_size()),
        "num_warps": 4,
        "num_stages": 1,
    }
    arguments = (
        query,
        weights,
        keys,
        scales,
        logits,
        metadata.block_table,
        metadata.query_start_loc,
        metadata.seq_lens,
        *query.stride()[:2],
        *weights.stride(),
        *keys.stride()[:2],
        *scales.stride()[:2],
        metadata.block_table.stride(0),
        logits.stride(0),
        params.scale,
        metadata.seq_lens.shape[0],
        columns,
    )
    return Launch(index_logits_kernel, (tokens, -(-columns // tile)), arguments, constants)


def pick_launch(logits: Tensor, metadata: Metadata, topk: int, out: Tensor) -> Launch:
    """logits: [T, columns] float32. out: [T, K] int32, every row of a sequence written whole."""
    sequences = metadata.seq_lens.shape[0]
    places = (metadata.query_start_loc, metadata.seq_lens)
    return Launch(
        pick_kernel,
        (logits.shape[0],),
        (logits, out, *places, logits.stride(0), out.stride(0), sequences),
        {"TOPK": topk, "CHUNK": CHUNK, "num_warps": 4},
    )
