"""What every backend of paged attention takes for granted of a call, said before kernels run.

Shapes, dtypes and devices alone are looked at, but where the batch lies on the processor.
Sentences begin with the name of the backend that asks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import (
    FLOATS,
    CheckedMetadata,
    check_tensors,
    check_tokens,
    refuse,
)
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

STORED = FLOATS | {
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.int8,
}


def check_call(
    name: str, query: Tensor, cache: Tensor, metadata: Metadata, params: Paged, out: Tensor | None
) -> None:
    """InputError: query, cache, batch, params and output do not fit together."""
    check_tensors(name, query=query, cache=cache)
    check_kind(name, params)
    shape, cached = query.shape, cache.shape
    if len(shape) != 3 or query.dtype not in FLOATS:
        refuse(
            name,
            "query must be [T, H, D] of float32, float16 or bfloat16; "
            f"it is {list(shape)} {query.dtype}",
        )
    _check_cache(name, cache, params)
    tokens, heads, width = shape
    if heads % cached[2]:
        refuse(
            name,
            f"{heads} query heads do not divide by the cache's {cached[2]} KV "
            "heads; pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)",
        )
    if not 0 < width < cached[3]:
        refuse(
            name,
            f"query heads of {width} do not fit a cache of width {cached[3]}, which holds K and V: "
            "D + Dv",
        )
    device = query.device
    if cache.device != device or metadata.seq_lens.device != device:
        same_device(name, query, cache=cache, seq_lens=metadata.seq_lens)
    _check_params(name, params, query, metadata.seq_lens.shape[0])
    if isinstance(metadata, CheckedMetadata):
        check_tokens(name, metadata.rows, tokens)
    if out is not None:
        _check_out(name, query, cached[3] - width, out)


def check_write(
    name: str, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
) -> None:
    """InputError: rows, slots, cache and scales of a write do not fit together."""
    check_tensors(name, key=key, value=value, cache=cache)
    check_kind(name, params)
    _check_cache(name, cache, params)
    slots, of_key, of_value = metadata.slot_mapping, key.shape, value.shape
    kv_heads, width = cache.shape[2:]
    if (
        len(of_key) != 3
        or len(of_value) != 3
        or of_key[:2] != of_value[:2]
        or of_key[1] != kv_heads
        or of_key[2] + of_value[2] != width
    ):
        refuse(
            name,
            f"key must be [T, {kv_heads}, D] and value [T, {kv_heads}, Dv] with D + Dv = {width}, "
            f"as in the cache; they are {list(of_key)} and {list(of_value)}",
        )
    if key.dtype not in FLOATS or value.dtype is not key.dtype:
        refuse(
            name,
            "key and value must be both float32, float16 or bfloat16; "
            f"they are {key.dtype} and {value.dtype}",
        )
    device = cache.device
    if key.device != device or value.device != device or slots.device != device:
        same_device(name, cache, key=key, value=value, slot_mapping=slots)
    last = metadata.last_slot if isinstance(metadata, CheckedMetadata) else -1
    check_slots(name, cache, slots, of_key[0], last, rows_of="rows of key")
    check_written(name, cache, params)


def check_written(name: str, cache: Tensor, params: Paged) -> None:
    """InputError: what a write fills lies in one place: the cache's tokens, or scales."""
    check_spread(name, cache, "tokens of a cache that is written")
    k_scale, v_scale = params.k_scale, params.v_scale
    if isinstance(k_scale, Tensor) and isinstance(v_scale, Tensor):
        check_tensors(name, k_scale=k_scale, v_scale=v_scale)
        for scale in (k_scale, v_scale):
            check_spread(name, scale, "scales of a cache that is written")
        # tensors without memory, for which kernels are compiled, all lie at 0
        alike = k_scale.data_ptr() == v_scale.data_ptr() and not k_scale.is_meta
        if k_scale.numel() and alike:
            refuse(name, "k_scale and v_scale are one tensor, and a write fills both; pass two")


def check_kind(name: str, params: Paged) -> None:
    """InputError: no params of paged attention."""
    if not isinstance(params, Paged):
        refuse(name, f"params must be an attnctl.ops.paged.Paged; it is {shown(params)}")


def check_slots(
    name: str,
    cache: Tensor,
    slots: Tensor,
    rows: int,
    last: int,
    rows_of: str = "rows",
    of_cache: str = "cache",
) -> None:
    """InputError: more slots than rows, or one outside the cache [N, P, ...].

    last: the greatest slot, -1 where that is not known. rows_of, of_cache: what both are called.
    """
    if slots.shape[0] > rows:
        refuse(
            name,
            f"slot_mapping has {slots.shape[0]} entries for {rows} {rows_of}; it may not "
            "have more than rows",
        )
    total = cache.shape[0] * cache.shape[1]
    if last >= total:
        refuse(
            name,
            f"slot {last} of slot_mapping lies outside the {of_cache}; "
            f"{cache.shape[0]} blocks of {cache.shape[1]} end at slot {total - 1}",
        )


def check_params_of(name: str, params: Paged, query: Tensor, sequences: int) -> None:
    """InputError: a tensor of the params has another size, or place, than the batch."""
    for what in ("sinks", "alibi_slopes"):
        tensor = getattr(params, what)
        if tensor is None:
            continue
        if tensor.shape != query.shape[1:2]:
            refuse(
                name,
                f"{what} must be {list(query.shape[1:2])}, one a query head; "
                f"it is {list(tensor.shape)}",
            )
        same_device(name, query, **{what: tensor})
    ranges = params.prefix_ranges
    if ranges is not None:
        if ranges.shape[0] != sequences:
            refuse(name, f"prefix_ranges must be [{sequences}, M, 2]; it is {list(ranges.shape)}")
        same_device(name, query, prefix_ranges=ranges)


def _check_params(name: str, params: Paged, query: Tensor, sequences: int) -> None:
    of_heads = params.sinks is not None or params.alibi_slopes is not None
    if of_heads or params.prefix_ranges is not None:
        check_params_of(name, params, query, sequences)


def _check_cache(name: str, cache: Tensor, params: Paged) -> None:
    if cache.dim() != 4 or not cache.shape[2]:
        refuse(
            name,
            f"the cache must be (N, P, Hk, D + Dv), as cache_shape gives it; "
            f"it is {list(cache.shape)}",
        )
    if cache.dtype not in STORED:
        bytes_ = cache.dtype is torch.uint8
        instead = ": pass cache.view(torch.float8_e4m3fn), where FP8 is in it" if bytes_ else ""
        refuse(name, f"no kernel reads a cache of {cache.dtype}{instead}")
    per_token = cache.dtype is torch.int8
    if not per_token and type(params.k_scale) is float and type(params.v_scale) is float:
        return  # asking a number whether it is a tensor takes longer than all else here
    for scale in (params.k_scale, params.v_scale):
        if isinstance(scale, Tensor) is not per_token:
            wanted = "tensors [N, P, Hk] float32" if per_token else "numbers"
            refuse(name, f"a {cache.dtype} cache takes k_scale and v_scale as {wanted}")
        if isinstance(scale, Tensor):
            if scale.shape != cache.shape[:3] or scale.dtype is not torch.float32:
                refuse(
                    name,
                    f"k_scale and v_scale must be {list(cache.shape[:3])} float32; "
                    f"one is {list(scale.shape)} {scale.dtype}",
                )
            same_device(name, cache, scales=scale)


def _check_out(name: str, query: Tensor, width: int, out: Tensor) -> None:
    check_tensors(name, out=out)
    wanted = (*query.shape[:2], width)
    if out.shape != wanted or out.dtype is not query.dtype or out.device != query.device:
        refuse(
            name,
            f"out must be {list(wanted)} {query.dtype} on {query.device}; "
            f"it is {list(out.shape)} {out.dtype} on {out.device}",
        )
    check_spread(name, out)


def check_spread(name: str, out: Tensor, what: str = "rows of a result") -> None:
    """InputError: places of what is written lie on one another. what: they, in words."""
    strides = out.stride()
    if 0 not in strides:
        return
    if any(size > 1 and stride == 0 for size, stride in zip(out.shape, strides, strict=True)):
        refuse(name, f"{what} must not lie on one another; clone what was expanded")


def same_device(name: str, first: Tensor, **others: Tensor) -> None:
    """InputError: one of the others lies on another device than the first."""
    for what, tensor in others.items():
        if tensor.device != first.device:
            refuse(
                name,
                f"all tensors of a call must lie on one device; {what} is on {tensor.device}, "
                f"others on {first.device}",
            )
