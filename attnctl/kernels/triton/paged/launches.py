"""The launches of a plan for paged attention: kernels with their grids and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor

from attnctl.kernels.triton.descriptors import descriptor_arguments
from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.launch import LOG2E, Launch, split_width
from attnctl.kernels.triton.paged.decode import decode_kernel, reduce_kernel
from attnctl.kernels.triton.paged.plan import Plan, Shape
from attnctl.kernels.triton.paged.prefill import prefill_kernel
from attnctl.kernels.triton.paged.prefill_call import paged_launch

if TYPE_CHECKING:
    from attnctl.ops.paged import Paged


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
    size = partial_size(shape, chosen.segments)
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


def partial_size(shape: Shape, segments: int) -> int:
    """The float32 numbers that segments leave to the reduce pass: of a row part, top and total."""
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
