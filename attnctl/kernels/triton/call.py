"""The call: shapes checked, a plan asked for, the kernels launched."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from torch import Tensor

from attnctl.kernels.triton.decode import decode_kernel, reduce_kernel
from attnctl.kernels.triton.descriptors import descriptor_arguments
from attnctl.kernels.triton.launch import (
    Device,
    Knobs,
    Launch,
    Plan,
    Shape,
    knobs_for,
    plan,
    split_width,
)
from attnctl.kernels.triton.prefill import prefill_kernel
from attnctl.kernels.triton.prefill_call import paged_launch
from attnctl.kernels.triton.relaunch import Relaunches, Scratch, form_of
from attnctl.kernels.triton.stand_in import meta_device

if TYPE_CHECKING:
    from attnctl.ops.paged import Paged

LOG2E = 1.4426950408889634


class Prepared(NamedTuple):
    """A batch's shape and its launch."""

    shape: Shape
    plan: Plan


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    params: Paged,
    *,
    max_query_len: int,
    max_seq_len: int,
    out: Tensor | None = None,
    knobs: Knobs | None = None,
    workspace: Tensor | None = None,
    prepared: Prepared | None = None,
    kept: Relaunches | None = None,
) -> Tensor:
    """out: [T, H, Dv], in the query's dtype. The mathematics is attnctl.ops.paged's.

    query: [T, H, D] float16, bfloat16 or float32, any strides. key_cache: [N, P, Hk, D],
    value_cache: [N, P, Hk, Dv], any strides; float16, bfloat16, float32, float8_e4m3fn,
    float8_e5m2, or int8 with params.k_scale and v_scale [N, P, Hk]. block_table: [B, pages] int32.
    query_start_loc: [B + 1] int32. seq_lens: [B] int32. max_query_len, max_seq_len: at least the
    longest of the batch; bounds that stay the same give the same launch, so a CUDA graph may be
    replayed with other lengths under them. out: rows of no sequence are left as they are.
    workspace: float32, at least workspace_size() elements, kept by a caller who wants none
    allocated. prepared: prepare()'s answer for tensors of these shapes and bounds, which every
    layer of a batch may share. kept: where launches of batches of one form are kept for the next;
    without it, and without a batch of that form before, each call works them out.
    ValueError where the shapes do not fit together.
    """
    if out is None:
        out = query.new_empty(query.shape[0], query.shape[1], value_cache.shape[3])
    if out.numel() == 0 or seq_lens.numel() == 0 or max_query_len == 0:
        return out
    tensors = (query, key_cache, value_cache, out, block_table, query_start_loc, seq_lens)

    def planned() -> Prepared:
        nonlocal prepared
        if prepared is None:
            longest = {"max_query_len": max_query_len, "max_seq_len": max_seq_len}
            prepared = prepare(query, key_cache, value_cache, seq_lens, **longest, knobs=knobs)
        return prepared

    device = None if kept is None or params.prefix_ranges is not None else kept.place(query)
    if kept is None or device is None:
        for kernel, grid, arguments, constants in launches(tensors, params, *planned(), workspace):
            kernel[grid](*arguments, **constants)
        return out

    def make(scratch: Scratch) -> list[Launch]:
        given, size = workspace, workspace_size(planned())
        if given is None and size:
            given = scratch.empty(size)
        return launches(tensors, params, *planned(), given, scratch.counts)

    numbers, others = _split(params)
    whole = (*tensors, workspace, *others)
    forms = (device, max_query_len, *numbers, *map(form_of, whole))

    def alike() -> Hashable:
        # of a decoding batch's longest context the plan alone depends: steps of one plan are alike
        chosen = planned().plan
        return (chosen, *forms) if chosen.kernel == "decode" else None

    kept.run((max_seq_len, knobs, prepared, *forms), whole, make, alike)
    return out


def _split(params: Paged) -> tuple[tuple[Hashable, ...], tuple[Tensor | None, ...]]:
    """The params without prefix_ranges: those that are numbers, and those that are tensors."""
    k_scale, v_scale = params.k_scale, params.v_scale
    of_keys = isinstance(k_scale, Tensor)
    of_values = isinstance(v_scale, Tensor)
    numbers = (
        params.scale,
        params.causal,
        params.window,
        params.window_right,
        params.chunk,
        params.softcap,
        None if of_keys else k_scale,
        None if of_values else v_scale,
    )
    tensors = (
        params.sinks,
        params.alibi_slopes,
        k_scale if of_keys else None,
        v_scale if of_values else None,
    )
    return numbers, tensors


def prepare(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    seq_lens: Tensor,
    *,
    max_query_len: int,
    max_seq_len: int,
    knobs: Knobs | None = None,
) -> Prepared:
    """What paged_attention works out from shapes alone, for a batch's layers to share."""
    shape = shape_of(query, key_cache, value_cache, seq_lens, max_query_len, max_seq_len)
    device = device_of(query.device)
    return Prepared(shape, plan(shape, device, knobs or knobs_for(device.arch)))


def workspace_size(prepared: Prepared) -> int:
    """The float32 elements that paged_attention needs for a prepared batch."""
    shape, chosen = prepared
    return 0 if chosen.segments == 1 else _partial_size(shape, chosen.segments)


def shape_of(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    seq_lens: Tensor,
    max_query_len: int,
    max_seq_len: int,
) -> Shape:
    """What the launch depends on. ValueError where the shapes do not fit together."""
    tokens, heads, width = query.shape
    _, page, kv_heads, key_width = key_cache.shape
    if width != key_width or heads % kv_heads or value_cache.shape[:3] != key_cache.shape[:3]:
        raise ValueError(
            f"query {tuple(query.shape)}, key cache {tuple(key_cache.shape)} and value cache "
            f"{tuple(value_cache.shape)} do not fit: want [T, H, D], [N, P, Hk, D], [N, P, Hk, Dv] "
            "and H a multiple of Hk"
        )
    return Shape(
        tokens=tokens,
        sequences=seq_lens.shape[0],
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        value_width=value_cache.shape[3],
        page=page,
        item_bytes=query.element_size(),
        cache_bytes=key_cache.element_size(),
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
    )


def device_of(device: torch.device) -> Device:
    """The facts of a tensor's device.

    On the CPU (Triton's interpreter) those of a small GPU; without memory those of the target.
    """
    if device.type == "cpu":
        return Device("interpreter", 4, 65536)
    if device.type == "meta":
        return meta_device()
    index = torch.cuda.current_device() if device.index is None else device.index
    return _gpu(index)


@lru_cache(maxsize=64)
def _gpu(index: int) -> Device:
    facts = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Device(
            facts.gcnArchName.partition(":")[0],
            facts.multi_processor_count,
            facts.shared_memory_per_block,
        )
    return Device(
        f"sm_{facts.major}{facts.minor}",
        facts.multi_processor_count,
        facts.shared_memory_per_block_optin,
    )


def launches(
    tensors: tuple[Tensor, ...],
    params: Paged,
    shape: Shape,
    chosen: Plan,
    workspace: Tensor | None = None,
    counts: Callable[[], Tensor] | None = None,
) -> list[Launch]:
    """The launches of a plan. tensors: query, K and V cache, out, table, starts, lengths.

    Looks at no contents: tensors on the meta device give the launches to compile for a device that
    is not there. counts: gives the counters of a persistent kernel, new ones where it is None.
    """
    if chosen.kernel == "prefill":
        return [_prefill(tensors, params, shape, chosen, counts)]
    if chosen.segments == 1:
        return [_decode(tensors, params, shape, chosen, tensors[3])]
    size = _partial_size(shape, chosen.segments)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.float32, device=tensors[3].device)
    elif workspace.numel() < size:
        raise ValueError(f"workspace has {workspace.numel()} elements, needs {size}")
    return [
        _decode(tensors, params, shape, chosen, workspace),
        _reduce(tensors, params, shape, chosen, workspace),
    ]


def _prefill(
    tensors: tuple[Tensor, ...],
    params: Paged,
    shape: Shape,
    chosen: Plan,
    counts: Callable[[], Tensor] | None,
) -> Launch:
    if chosen.groups:
        launch = _hopper(tensors, params, shape, counts)
        if launch is not None:
            return launch
    descriptors: tuple[Any, ...] | None = None
    if chosen.descriptors:
        descriptors = descriptor_arguments(tensors[1], tensors[2], chosen.tile)
    arguments = (
        *tensors,
        *_optional(params),
        *(descriptors or (None,) * 10),
        *_strides(tensors, params),
        *_numbers(params),
        shape.sequences,
    )
    grid = (chosen.query_tiles, shape.kv_heads * chosen.parts)
    return Launch(prefill_kernel, grid, arguments, _constants(params, shape, chosen))


def _hopper(
    tensors: tuple[Tensor, ...],
    params: Paged,
    shape: Shape,
    counts: Callable[[], Tensor] | None,
) -> Launch | None:
    """Hopper's own kernel, None where it does not take the batch's features or strides."""
    extra = (params.softcap, params.window, params.window_right, params.chunk, *_optional(params))
    if any(one is not None for one in extra):
        return None
    factor, _, v_scale, *_ = _numbers(params)
    scales = (float(factor or 0.0), float(v_scale or 0.0))
    longest = shape.max_query_len, shape.max_seq_len
    device = device_of(tensors[0].device)
    return paged_launch(tensors, *scales, params.causal, longest, device, counts)


def _decode(
    tensors: tuple[Tensor, ...],
    params: Paged,
    shape: Shape,
    chosen: Plan,
    workspace: Tensor,
) -> Launch:
    arguments = (
        *tensors,
        *_optional(params),
        workspace,
        _partial_rows(shape, chosen.segments),
        *_strides(tensors, params),
        *_numbers(params),
        chosen.least_tiles,
        chosen.query_tiles,
    )
    grid = (
        shape.sequences * chosen.query_tiles,
        shape.kv_heads * chosen.parts,
        chosen.segments,
    )
    constants = {**_constants(params, shape, chosen), "SPLIT": chosen.segments > 1}
    return Launch(decode_kernel, grid, arguments, constants)


def _reduce(
    tensors: tuple[Tensor, ...],
    params: Paged,
    shape: Shape,
    chosen: Plan,
    workspace: Tensor,
) -> Launch:
    arguments = (
        workspace,
        _partial_rows(shape, chosen.segments),
        tensors[3],
        _dense(params.sinks),
        tensors[5],
        *tensors[3].stride(),
        1.0 if isinstance(params.v_scale, Tensor) else params.v_scale,
        shape.sequences,
    )
    constants = {
        "DV": shape.value_width,
        "V_BLOCK": triton.next_power_of_2(shape.value_width),
        "SEGMENTS": chosen.segments,
        "num_warps": 2 if chosen.segments * shape.value_width <= 4096 else 4,
    }
    return Launch(reduce_kernel, (shape.tokens, shape.heads), arguments, constants)


def _partial_rows(shape: Shape, segments: int) -> int:
    return shape.tokens * shape.heads * segments


def _partial_size(shape: Shape, segments: int) -> int:
    # of each row its part, its top and its total
    return _partial_rows(shape, segments) * (shape.value_width + 2)


def _optional(params: Paged) -> tuple[Tensor | None, ...]:
    """Sinks, slopes, ranges, K and V scales: None leaves no code in the kernel."""
    token_scales = isinstance(params.k_scale, Tensor)
    ranges = params.prefix_ranges
    return (
        _dense(params.sinks),
        _dense(params.alibi_slopes),
        None if ranges is None or ranges.shape[1] == 0 else ranges.contiguous(),
        params.k_scale if token_scales else None,
        params.v_scale if token_scales else None,
    )


def _dense(of_heads: Tensor | None) -> Tensor | None:
    """A tensor that the kernels read one number after the other."""
    return of_heads if of_heads is None else of_heads.contiguous()


def _strides(tensors: tuple[Tensor, ...], params: Paged) -> list[int]:
    query, keys, values, out, table = tensors[:5]
    strides = [*query.stride(), *keys.stride(), *values.stride(), *out.stride(), table.stride(0)]
    if isinstance(params.k_scale, Tensor) and isinstance(params.v_scale, Tensor):
        return [*strides, *params.k_scale.stride(), *params.v_scale.stride()]
    return [*strides, 0, 0, 0, 0, 0, 0]


def _numbers(params: Paged) -> tuple[float | int | None, ...]:
    """factor, cap, v_scale, window, window_right, chunk, ranges."""
    scale = params.scale
    if not isinstance(params.k_scale, Tensor):
        scale *= params.k_scale
    cap = params.softcap
    return (
        scale * LOG2E if cap is None else scale / cap,
        None if cap is None else cap * LOG2E,
        1.0 if isinstance(params.v_scale, Tensor) else params.v_scale,
        params.window,
        params.window_right,
        params.chunk,
        0 if params.prefix_ranges is None else params.prefix_ranges.shape[1],
    )


def _constants(params: Paged, shape: Shape, chosen: Plan) -> dict[str, Any]:
    low, high = split_width(shape.width)
    value_low, value_high = split_width(shape.value_width)
    positive = params.scale > 0 and (isinstance(params.k_scale, Tensor) or params.k_scale > 0)
    return {
        "BLOCK_M": chosen.rows,
        "TILE": chosen.tile,
        "PAGE": shape.page,
        "GROUP": shape.heads // shape.kv_heads,
        "HEADS": chosen.heads,
        "D": shape.width,
        "D_LOW": low,
        "D_HIGH": high,
        "DV": shape.value_width,
        "V_LOW": value_low,
        "V_HIGH": value_high,
        "CAUSAL": params.causal,
        "PLAIN": positive and params.softcap is None and params.alibi_slopes is None,
        "INTERPRET": bool(triton.knobs.runtime.interpret),
        "PRECISION": chosen.precision,
        "num_warps": chosen.warps,
        "num_stages": chosen.stages,
    }
