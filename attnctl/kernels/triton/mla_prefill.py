"""The uncompressed form: packed queries over packed keys and values, with the log-sum-exp."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.latent_call import dense_query
from attnctl.kernels.triton.latent_launch import RDNA, latent_device, precision, run
from attnctl.kernels.triton.latent_tile import find_tile, load_columns
from attnctl.kernels.triton.launch import LOG2E, Device, Launch, Tiles, power, split_width
from attnctl.kernels.triton.prefill_call import packed_launch
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.runtime import Metadata


@triton.jit
def attend_keys(
    q,
    q_high,
    acc,
    top,
    total,
    k,
    k_high,
    v,
    seen,
    factor,
    D_HIGH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A tile of keys added to the running sum, top and total. seen: None where all rows see all."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    if D_HIGH > 0:
        s = tl.dot(q_high, tl.trans(k_high), acc=s, input_precision=PRECISION)
    if seen is None:
        # the factor is positive: it goes into the exponent with one multiplication and addition
        new_top = tl.maximum(top, tl.max(s, 1) * factor)
        shift = new_top
        p = tl.exp2(s * factor - shift[:, None])
    else:
        s = tl.where(seen, s * factor, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        # a row that has seen nothing yet: -inf - -inf would be NaN
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        p = tl.exp2(s - shift[:, None])
    fade = tl.exp2(top - shift)
    total = total * fade + tl.sum(p, 1)
    acc = tl.dot(p.to(q.dtype), v, acc=acc * fade[:, None], input_precision=PRECISION)
    return acc, new_top, total


@triton.jit
def mla_prefill_kernel(
    Q,
    K,
    V,
    OUT,
    LSE,
    STARTS,
    KEY_STARTS,
    stride_qt,
    stride_qh,
    stride_ks,
    stride_kh,
    stride_vs,
    stride_vh,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    sequences,
    BLOCK_M: tl.constexpr,
    TILE: tl.constexpr,
    D: tl.constexpr,
    D_LOW: tl.constexpr,
    D_HIGH: tl.constexpr,
    DV: tl.constexpr,
    V_BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
    POSITIVE: tl.constexpr,
    INTERPRET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Grid: (query tiles, H). The key is cut in a low and a high power of two (192 = 128 + 64).

    Tiles that every row sees whole come first, without a mask.
    """
    # backwards: with a causal mask the longest start first
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    sequence = find_tile(STARTS, tile, sequences, BLOCK_M)
    first = tl.load(STARTS + sequence)
    queries = tl.load(STARTS + sequence + 1) - first
    begin = (tile - first // BLOCK_M - sequence) * BLOCK_M
    if begin >= queries:
        return
    key_first = tl.load(KEY_STARTS + sequence)
    length = tl.load(KEY_STARTS + sequence + 1) - key_first
    head = tl.program_id(1).to(tl.int64)
    index = begin + tl.arange(0, BLOCK_M)
    real = index < queries
    token = (first + index).to(tl.int64)
    position = length - queries + index
    DTYPE: tl.constexpr = tl.float32 if INTERPRET else Q.dtype.element_ty
    HIGH: tl.constexpr = D - D_LOW
    WHOLE: tl.constexpr = D if D_HIGH == 0 else D_LOW
    rows_q = token * stride_qt + head * stride_qh
    q = load_columns(Q, rows_q, real, WHOLE, D_LOW, 0, DTYPE)
    q_high = q
    if D_HIGH > 0:
        q_high = load_columns(Q + D_LOW, rows_q, real, HIGH, D_HIGH, 0, DTYPE)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, V_BLOCK], tl.float32)
    hi = length
    whole = length
    if CAUSAL:
        hi = tl.minimum(length, length - queries + begin + BLOCK_M)
        whole = tl.maximum(length - queries + begin + 1, 0)
    whole = whole // TILE * TILE if POSITIVE else 0
    K += head * stride_kh
    V += head * stride_vh
    for start in range(0, whole, TILE):
        key = start + tl.arange(0, TILE)
        inside = key >= 0
        rows_k = (key_first + key).to(tl.int64) * stride_ks
        rows_v = (key_first + key).to(tl.int64) * stride_vs
        k = load_columns(K, rows_k, inside, WHOLE, D_LOW, 0, q.dtype)
        v = load_columns(V, rows_v, inside, DV, V_BLOCK, 0, q.dtype)
        k_high = k
        if D_HIGH > 0:
            k_high = load_columns(K + D_LOW, rows_k, inside, HIGH, D_HIGH, 0, q.dtype)
        acc, top, total = attend_keys(
            q, q_high, acc, top, total, k, k_high, v, None, factor, D_HIGH, PRECISION
        )
    for start in range(whole, hi, TILE):
        key = start + tl.arange(0, TILE)
        inside = key < hi
        rows_k = (key_first + key).to(tl.int64) * stride_ks
        rows_v = (key_first + key).to(tl.int64) * stride_vs
        k = load_columns(K, rows_k, inside, WHOLE, D_LOW, 0, q.dtype)
        v = load_columns(V, rows_v, inside, DV, V_BLOCK, 0, q.dtype)
        k_high = k
        if D_HIGH > 0:
            k_high = load_columns(K + D_LOW, rows_k, inside, HIGH, D_HIGH, 0, q.dtype)
        seen = inside[None, :] & real[:, None]
        if CAUSAL:
            seen = seen & (key[None, :] <= position[:, None])
        acc, top, total = attend_keys(
            q, q_high, acc, top, total, k, k_high, v, seen, factor, D_HIGH, PRECISION
        )
    safe = tl.where(total > 0.0, total, 1.0)
    column = tl.arange(0, V_BLOCK)
    rows = token * stride_ot + head * stride_oh
    value = acc / safe[:, None]
    keep = real[:, None] & (column < DV)[None, :]
    tl.store(OUT + rows[:, None] + column[None, :], value.to(OUT.dtype.element_ty), mask=keep)
    lse = tl.where(total > 0.0, (top + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    tl.store(LSE + token * stride_st + head * stride_sh, lse, mask=real)


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
    """attnctl.kernels.latent_prefill.Attend: out in the query's dtype, lse float32.

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
