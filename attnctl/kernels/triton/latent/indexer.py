"""The lightning indexer's logits in Triton, of every context token that a query token sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent.launch import converts_e4m3, latent_device, precision
from attnctl.kernels.triton.latent.tile import find_tile, load_columns
from attnctl.kernels.triton.launch import Device, Launch, power
from attnctl.ops.indexer import Indexing, key_planes
from attnctl.ops.packed_rows import GROUP
from attnctl.runtime import Metadata


@triton.jit
def load_asked(
    Q,
    WEIGHTS,
    token,
    stride_qt,
    stride_qh,
    stride_wt,
    stride_wh,
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    D_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    DTYPE: tl.constexpr,
):
    """[heads, WIDTH] index queries of a token, and its weights; 0 in heads that do not exist."""
    head = tl.arange(0, HEADS_BLOCK)
    real = head < HEADS
    rows = token * stride_qt + head.to(tl.int64) * stride_qh
    q = load_columns(Q, rows, real, WIDTH, D_BLOCK, FORMAT, DTYPE)
    at = token * stride_wt + head.to(tl.int64) * stride_wh
    return q, tl.load(WEIGHTS + at, mask=real, other=0.0).to(tl.float32)


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
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    FORMAT: tl.constexpr,
    KEY_FORMAT: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: (query tiles of TOKENS, parts of the context of TILES tiles). Writes visible columns.

    Keys are widened once for TOKENS query tokens. The product has keys as rows, so that the sum
    over heads stays within a thread, or nearly.
    """
    tile = tl.program_id(0)
    sequence = find_tile(STARTS, tile, sequences, TOKENS)
    first = tl.load(STARTS + sequence)
    queries = tl.load(STARTS + sequence + 1) - first
    begin = (tile - first // TOKENS - sequence) * TOKENS
    if begin >= queries:
        return
    before = (tl.load(LENGTHS + sequence) - queries + 1).to(tl.int32)
    last = tl.minimum(begin + TOKENS, queries)
    first_key = tl.program_id(1) * (TILE * TILES)
    end = tl.minimum(first_key + TILE * TILES, before + last - 1)
    if first_key >= end:
        return
    table = TABLE + tl.cast(sequence, tl.int64) * stride_table
    WIDE: tl.constexpr = tl.float16 if FORMAT > 0 else Q.dtype.element_ty
    DTYPE: tl.constexpr = tl.float32 if INTERPRET else WIDE
    WHOLE: tl.constexpr = D if GROUPS == 1 else 128
    if TOKENS == 1 and GROUPS == 1:
        q, weight = load_asked(
            Q, WEIGHTS, (first + begin).to(tl.int64), stride_qt, stride_qh, stride_wt, stride_wh,
            HEADS, HEADS_BLOCK, WHOLE, D_BLOCK, FORMAT, DTYPE,
        )  # fmt: skip
    for start in range(first_key, end, TILE):
        key = start + tl.arange(0, TILE)
        seen = key < end
        page = tl.load(table + key // PAGE, mask=seen, other=0).to(tl.int64)
        offset = (key % PAGE).to(tl.int64)
        rows = page * stride_kn + offset * stride_kp
        k = load_columns(KEYS, rows, seen, WHOLE, D_BLOCK, KEY_FORMAT, DTYPE)
        at = SCALES + page * stride_sn + offset * stride_sp
        k_scale = tl.load(at, mask=seen, other=0.0)
        for index in range(begin, last):
            token = (first + index).to(tl.int64)
            if TOKENS > 1 or GROUPS > 1:
                q, weight = load_asked(
                    Q, WEIGHTS, token, stride_qt, stride_qh, stride_wt, stride_wh,
                    HEADS, HEADS_BLOCK, WHOLE, D_BLOCK, FORMAT, DTYPE,
                )  # fmt: skip
            # a key's scale is positive, so that it may stand before relu and behind it
            sums = tl.dot(k, tl.trans(q), input_precision=PRECISION) * k_scale[:, None]
            for group in tl.static_range(1, GROUPS):
                more, weight = load_asked(
                    Q + group * 128, WEIGHTS, token, stride_qt, stride_qh, stride_wt, stride_wh,
                    HEADS, HEADS_BLOCK, min(D - group * 128, 128), D_BLOCK, FORMAT, DTYPE,
                )  # fmt: skip
                part = load_columns(
                    KEYS + group * 128, rows, seen, min(D - group * 128, 128), D_BLOCK,
                    KEY_FORMAT, DTYPE,
                )  # fmt: skip
                its_scale = tl.load(at + group, mask=seen, other=0.0)
                product = tl.dot(part, tl.trans(more), input_precision=PRECISION)
                sums += product * its_scale[:, None]
            logits = tl.sum(tl.maximum(sums, 0.0) * weight[None, :], 1) * scale
            row = LOGITS + token * stride_logits
            tl.store(row + key, logits, mask=key < before + index)


def logits_launch(
    query: Tensor,
    weights: Tensor,
    cache: Tensor,
    metadata: Metadata,
    params: Indexing,
    logits: Tensor,
    shape: Asked | None = None,
) -> Launch:
    """query: [T, Hi, D], the last dimension dense. weights: [T, Hi]. logits: [T, columns].

    Writes what a query token sees and nothing else.
    """
    gpu = latent_device(query.device)
    tokens, heads, width = query.shape
    keys, scales = key_planes(cache)
    keys = keys.view(torch.uint8)
    fp8 = query.dtype is torch.float8_e4m3fn
    query = query.view(torch.uint8) if fp8 else query
    sequences, columns = metadata.seq_lens.shape[0], logits.shape[1]
    longest = metadata.max_query_len
    shape = shape or asked_shape(gpu, tokens, longest, columns, heads, query.element_size())
    converts = converts_e4m3(gpu)
    constants: dict[str, Any] = {
        "HEADS": heads,
        "HEADS_BLOCK": power(heads),
        "TOKENS": shape.tokens,
        "TILE": shape.keys,
        "TILES": shape.tiles,
        "PAGE": cache.shape[1],
        "D": width,
        "D_BLOCK": power(min(width, GROUP)),
        "GROUPS": scales.shape[2],
        "FORMAT": (3 if converts else 1) if fp8 else 0,
        "KEY_FORMAT": 3 if converts else 1,
        "INTERPRET": query.device.type == "cpu",
        "PRECISION": precision(gpu, query.element_size()),
        "num_warps": shape.warps,
        "num_stages": shape.stages,
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
        sequences,
    )
    grid = (tokens // shape.tokens + sequences, -(-columns // (shape.keys * shape.tiles)))
    return Launch(index_logits_kernel, grid, arguments, constants)


class Asked(NamedTuple):
    """Query tokens of a program, keys of a tile, tiles of a program, warps, stages."""

    tokens: int
    keys: int
    tiles: int
    warps: int
    stages: int


def asked_shape(
    gpu: Device, tokens: int, max_query_len: int, columns: int, heads: int, item_bytes: int
) -> Asked:
    """What a program of the logits does: of one query token many keys, or of many tokens a few.

    Measured on an H200 (benchmarks/mla_gpu.py).
    """
    small = item_bytes > 2 or power(heads) > 64 or gpu.arch == "interpreter"
    if small:
        return Asked(16, 32, 1, 4, 2) if max_query_len > 4 else Asked(1, 32, 8, 4, 2)
    if gpu.shared_memory_bytes < 160000:
        return Asked(16, 128, 1, 4, 2) if max_query_len > 4 else Asked(1, 128, 8, 4, 2)
    if max_query_len > 4:
        return Asked(32, 128, 1, 4, 3)
    # the query is loaded once a program, where there is work for programs of many keys
    many = tokens * columns >= 64 * 16 * 16 * gpu.units
    return Asked(1, 64, 16, 4, 3) if many else Asked(1, 64, 8, 4, 2)
