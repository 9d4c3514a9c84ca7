"""The call: shapes checked, a plan asked for, the kernels launched."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.launch import Launch
from attnctl.kernels.triton.paged.launches import launches, partial_size
from attnctl.kernels.triton.paged.plan import Knobs, Plan, Shape, knobs_for, plan
from attnctl.kernels.triton.relaunch import Relaunches, Scratch

if TYPE_CHECKING:
    from attnctl.ops.paged import Paged


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
    facts = (device, max_query_len, *numbers)

    def alike() -> Hashable:
        # of a decoding batch's longest context the plan alone depends: steps of one plan are alike
        chosen = planned().plan
        return (chosen, *facts) if chosen.kernel == "decode" else None

    kept.run((max_seq_len, knobs, prepared, *facts), whole, make, alike)
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
    return 0 if chosen.segments == 1 else partial_size(shape, chosen.segments)


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
