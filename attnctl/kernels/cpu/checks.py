"""What CPU_ATTN's kernels take for granted, said before they run: they read by bare addresses."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.exits import InputError
from attnctl.kernels import size_checks
from attnctl.kernels.batch_checks import FLOATS, CheckedMetadata, check_tensors
from attnctl.kernels.paged.checks import check_written
from attnctl.ops.paged import Paged

BLOCK_MULTIPLE = 32
HEAD_MULTIPLE = 8
HEAD_LEAST = 16
STORED = FLOATS | {torch.float8_e4m3fn, torch.float8_e5m2, torch.int8}


def refuse(what: str) -> NoReturn:
    raise InputError(f"CPU_ATTN: {what}")


def check_sizes(
    num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, head_size_v: int
) -> None:
    """InputError: a size of cache_shape that the kernels do not take."""
    counts = {"num_blocks": num_blocks, "num_kv_heads": num_kv_heads}
    widths = {"head_size": head_size, "head_size_v": head_size_v}
    size_checks.check_sizes("CPU_ATTN", block_size, BLOCK_MULTIPLE, **counts, **widths)
    for name, size in widths.items():
        if size < HEAD_LEAST or size % HEAD_MULTIPLE:
            refuse(
                f"{name} must be a multiple of {HEAD_MULTIPLE} and at least {HEAD_LEAST}; "
                f"it is {size}"
            )


def check_write(
    key: Tensor, value: Tensor, cache: Tensor, metadata: CheckedMetadata, params: Paged
) -> None:
    """InputError: rows, slots and cache of a write do not fit together."""
    check_tensors("CPU_ATTN", key=key, value=value, cache=cache)
    check_cache(cache, params)
    blocks, page, kv_heads, width = cache.shape
    key_shape, value_shape = key.shape, value.shape
    if (
        len(key_shape) != 3
        or len(value_shape) != 3
        or key_shape[:2] != value_shape[:2]
        or key_shape[1] != kv_heads
        or key_shape[2] + value_shape[2] != width
    ):
        refuse(
            f"key must be [T, {kv_heads}, D] and value [T, {kv_heads}, Dv] with D + Dv = {width}, "
            f"as in the cache; they are {list(key_shape)} and {list(value_shape)}"
        )
    if key.dtype not in FLOATS or value.dtype is not key.dtype or not (key.is_cpu and value.is_cpu):
        refuse(
            "key and value must be both float32, float16 or bfloat16 on the cpu; "
            f"they are {key.dtype} on {key.device} and {value.dtype} on {value.device}"
        )
    if metadata.slot_mapping.shape[0] > key_shape[0]:
        refuse(
            f"slot_mapping has {metadata.slot_mapping.shape[0]} entries for {key_shape[0]} rows of "
            "key; it may not have more than rows"
        )
    if metadata.last_slot >= blocks * page:
        refuse(
            f"slot {metadata.last_slot} of slot_mapping lies outside the cache; "
            f"{blocks} blocks of {page} end at slot {blocks * page - 1}"
        )
    check_written("CPU_ATTN", cache, params)


def check_cache(cache: Tensor, params: Paged) -> None:
    """InputError: no cache of cache_shape's, or scales that do not belong to it."""
    if not isinstance(params, Paged):
        refuse(f"params must be an attnctl.ops.paged.Paged; it is {shown(params)}")
    shape, dtype = cache.shape, cache.dtype
    if len(shape) != 4 or cache.stride(3) != 1 or dtype not in STORED or not cache.is_cpu:
        refuse(
            "the cache must be (N, P, Hk, D + Dv) on the cpu, its last dimension dense; "
            f"it is {list(shape)} of {dtype} on {cache.device}"
        )
    if shape[1] < 1 or shape[1] % BLOCK_MULTIPLE:
        refuse(
            f"the cache's blocks must hold a multiple of {BLOCK_MULTIPLE} tokens; they hold "
            f"{shape[1]}. Pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
        )
    per_token = dtype is torch.int8
    for scale in (params.k_scale, params.v_scale):
        if isinstance(scale, Tensor) is not per_token:
            wanted = "tensors [N, P, Hk] float32" if per_token else "numbers"
            refuse(f"a {dtype} cache takes k_scale and v_scale as {wanted}")
        if isinstance(scale, Tensor) and (
            scale.shape != shape[:3] or scale.dtype is not torch.float32 or not scale.is_cpu
        ):
            refuse(
                f"k_scale and v_scale must be {list(shape[:3])} float32 on the cpu; "
                f"one is {list(scale.shape)} {scale.dtype} on {scale.device}"
            )


def check_query(
    query: Tensor, cache: Tensor, metadata: CheckedMetadata, out: Tensor | None
) -> None:
    """InputError: query and output do not fit the cache or the batch."""
    check_tensors("CPU_ATTN", query=query, cache=cache)
    shape, cached = query.shape, cache.shape
    if len(shape) != 3 or query.dtype not in FLOATS or not query.is_cpu:
        refuse(
            "query must be [T, H, D] of float32, float16 or bfloat16 on the cpu; "
            f"it is {list(shape)} {query.dtype} on {query.device}"
        )
    tokens, heads, width = shape
    if len(cached) != 4:
        refuse(f"the cache must be (N, P, Hk, D + Dv); it is {list(cached)}")
    if not cached[2] or heads % cached[2]:
        refuse(
            f"{heads} query heads do not divide by the cache's {cached[2]} KV "
            "heads; pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
        )
    if not 0 < width < cached[3]:
        refuse(
            f"query heads of {width} do not fit a cache of width {cached[3]}, which holds K and V: "
            "D + Dv"
        )
    if metadata.rows > tokens:
        refuse(
            f"query has {tokens} rows; query_start_loc ends at {metadata.rows} and needs as many"
        )
    if out is not None:
        check_tensors("CPU_ATTN", out=out)
        wanted = (tokens, heads, cached[3] - width)
        if out.shape != wanted or out.dtype is not query.dtype or not out.is_cpu:
            refuse(
                f"out must be {list(wanted)} {query.dtype} on the cpu; "
                f"it is {list(out.shape)} {out.dtype} on {out.device}"
            )
        if out.stride(2) != 1:
            refuse(f"out's last dimension must be dense; its stride is {out.stride(2)}")
