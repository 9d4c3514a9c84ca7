"""Writing new keys and values into a paged cache, K and V of any widths, in one launch."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnctl.kernels.triton.launch import Launch
from attnctl.kernels.triton.relaunch import Relaunches


@triton.jit
def round_to_grid(value, MANTISSA: tl.constexpr, SMALLEST: tl.constexpr):
    """The nearest number of MANTISSA mantissa bits, ties to even; 2^SMALLEST the least normal one.

    Triton's interpreter loses the carry where rounding reaches the next power of two (1.9991 became
    1.0), and rounds no bfloat16: there a cast must have nothing left to round. Nor does it know
    what is not a number: it keeps the leading bits, so all that are kept are set.
    """
    exponent = ((value.to(tl.int32, bitcast=True) >> 23) & 255) - 127
    given, finite = value, exponent < 128
    value = tl.where(finite, value, 0.0)
    step = tl.exp2((tl.maximum(exponent, SMALLEST) - MANTISSA).to(tl.float32))
    scaled = value / step
    nearest = tl.floor(scaled + 0.5)
    odd = nearest - 2.0 * tl.floor(nearest * 0.5) != 0.0
    nearest = tl.where((nearest - scaled == 0.5) & odd, nearest - 1.0, nearest)
    bits = tl.full(value.shape, 0x7F800000 | ((1 << MANTISSA) - 1) << (23 - MANTISSA), tl.int32)
    endless = tl.where(given == given, given, bits.to(tl.float32, bitcast=True))
    return tl.where(finite, nearest * step, endless)


@triton.jit
def write_rows(
    SOURCE,
    CACHE,
    SCALES,
    at_source,
    at_cache,
    at_scale,
    stride_source_h,
    stride_source_d,
    stride_cache_h,
    stride_cache_d,
    stride_scale_h,
    scale,
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
    MANTISSA: tl.constexpr,
    SMALLEST: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """One token's heads, [HEADS, WIDTH], to its slot: as they are, scaled, or as int8.

    What is not a number stays so, in int8 by its row's scale: the least and the greatest of two
    numbers, and so of many, pass it over.
    """
    head = tl.arange(0, HEADS_BLOCK)
    column = tl.arange(0, BLOCK)
    keep = (head < HEADS)[:, None] & (column < WIDTH)[None, :]
    heads = head.to(tl.int64)
    source = at_source + heads[:, None] * stride_source_h + column[None, :] * stride_source_d
    value = tl.load(SOURCE + source, mask=keep, other=0.0)
    if INTERPRET:
        value = value.to(tl.float32)
    if SCALES is not None:
        value = value.to(tl.float32)
        none = tl.sum(tl.where(value == value, 0, 1), 1) > 0
        value = tl.where(value == value, value, 0.0)
        row_scale = tl.maximum(tl.max(tl.abs(value), 1) / 127.0, 1e-10)
        # floor(x + 1/2): rounding to the nearest integer that every target has
        value = tl.floor(value / row_scale[:, None] + 0.5)
        row_scale = tl.where(none, float("nan"), row_scale)
        tl.store(SCALES + at_scale + heads * stride_scale_h, row_scale, mask=head < HEADS)
    elif LIMIT > 0:
        value = value.to(tl.float32) / scale
        # a cast beyond the largest finite value gives NaN on some targets
        value = tl.where(value > LIMIT, LIMIT, tl.where(value < -LIMIT, -LIMIT, value))
    if INTERPRET and MANTISSA > 0:
        value = round_to_grid(value, MANTISSA, SMALLEST)
    target = at_cache + heads[:, None] * stride_cache_h + column[None, :] * stride_cache_d
    tl.store(CACHE + target, value.to(CACHE.dtype.element_ty), mask=keep)


@triton.jit
def write_cache_kernel(
    KEY,
    VALUE,
    K_CACHE,
    V_CACHE,
    SLOTS,
    K_SCALES,
    V_SCALES,
    stride_slots,
    stride_kt,
    stride_kh,
    stride_kd,
    stride_vt,
    stride_vh,
    stride_vd,
    stride_kcn,
    stride_kcp,
    stride_kch,
    stride_kcd,
    stride_vcn,
    stride_vcp,
    stride_vch,
    stride_vcd,
    stride_ksn,
    stride_ksp,
    stride_ksh,
    stride_vsn,
    stride_vsp,
    stride_vsh,
    k_scale,
    v_scale,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    DV_BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
    MANTISSA: tl.constexpr,
    SMALLEST: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """One program a slot of slot_mapping; a negative slot is a padding token."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(SLOTS + token * stride_slots).to(tl.int64)
    if slot < 0:
        return
    page = slot // PAGE
    row = slot % PAGE
    at_k_scale = 0
    at_v_scale = 0
    if K_SCALES is not None:
        at_k_scale = page * stride_ksn + row * stride_ksp
        at_v_scale = page * stride_vsn + row * stride_vsp
    write_rows(
        KEY,
        K_CACHE,
        K_SCALES,
        token * stride_kt,
        page * stride_kcn + row * stride_kcp,
        at_k_scale,
        stride_kh,
        stride_kd,
        stride_kch,
        stride_kcd,
        stride_ksh,
        k_scale,
        HEADS,
        HEADS_BLOCK,
        D,
        D_BLOCK,
        LIMIT,
        MANTISSA,
        SMALLEST,
        INTERPRET,
    )
    write_rows(
        VALUE,
        V_CACHE,
        V_SCALES,
        token * stride_vt,
        page * stride_vcn + row * stride_vcp,
        at_v_scale,
        stride_vh,
        stride_vd,
        stride_vch,
        stride_vcd,
        stride_vsh,
        v_scale,
        HEADS,
        HEADS_BLOCK,
        DV,
        DV_BLOCK,
        LIMIT,
        MANTISSA,
        SMALLEST,
        INTERPRET,
    )


def write_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    k_scale: float | Tensor = 1.0,
    v_scale: float | Tensor = 1.0,
    kept: Relaunches | None = None,
) -> None:
    """Writes token t of key and value to slot slot_mapping[t]: page slot // P, row slot % P.

    key: [T, Hk, D], value: [T, Hk, Dv], any strides. key_cache: [N, P, Hk, D], value_cache:
    [N, P, Hk, Dv], any strides (NHD, HND, K and V interleaved), both of one dtype: float16,
    bfloat16, float32; float8_e4m3fn, float8_e5m2, where value / scale is stored; int8, where the
    scales are tensors [N, P, Hk] float32 that get each token's and head's own.
    slot_mapping: [<= T] int64; a negative slot is not written, nor are rows beyond it.
    kept: where the launches of one form are kept for the next. ValueError where a scale does not
    fit the cache's dtype.
    """
    rows = slot_mapping.shape[0]
    if not rows:
        return
    tensors = (key, value, key_cache, value_cache, slot_mapping)
    device = None if kept is None else kept.place(key_cache)
    if kept is None or device is None:
        kernel, grid, arguments, constants = cache_launch(*tensors, k_scale, v_scale)
        kernel[grid](*arguments, **constants)
        return
    scales = k_scale, v_scale
    numbers = (None if isinstance(one, Tensor) else one for one in scales)
    whole = (*tensors, *(one if isinstance(one, Tensor) else None for one in scales))
    kept.run(("write", device, *numbers), whole, lambda scratch: [cache_launch(*tensors, *scales)])


def cache_launch(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    k_scale: float | Tensor,
    v_scale: float | Tensor,
) -> Launch:
    """write_cache's launch. Looks at no contents, so meta tensors do."""
    _, heads, width = key.shape
    value_width = value.shape[2]
    token_scales = _token_scales(key_cache, k_scale, v_scale)
    k_scales, v_scales = token_scales or (None, None)
    interpreted = bool(triton.knobs.runtime.interpret)
    narrow = token_scales is None and key_cache.element_size() == 1
    limit, mantissa, smallest = 0.0, 0, 0
    if narrow or (interpreted and key_cache.dtype is torch.bfloat16):
        facts = torch.finfo(key_cache.dtype)
        limit, mantissa = facts.max if narrow else 0.0, -int(math.log2(facts.eps))
        smallest = int(math.log2(facts.smallest_normal))
    arguments = (
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        k_scales,
        v_scales,
        slot_mapping.stride(0),
        *key.stride(),
        *value.stride(),
        *key_cache.stride(),
        *value_cache.stride(),
        *(k_scales.stride() if k_scales is not None else (0, 0, 0)),
        *(v_scales.stride() if v_scales is not None else (0, 0, 0)),
        1.0 if token_scales else k_scale,
        1.0 if token_scales else v_scale,
    )
    constants = {
        "PAGE": key_cache.shape[1],
        "HEADS": heads,
        "HEADS_BLOCK": triton.next_power_of_2(heads),
        "D": width,
        "D_BLOCK": triton.next_power_of_2(width),
        "DV": value_width,
        "DV_BLOCK": triton.next_power_of_2(value_width),
        "LIMIT": limit,
        "MANTISSA": mantissa,
        "SMALLEST": smallest,
        "INTERPRET": interpreted,
        "num_warps": 4 if heads * width >= 1024 else 2,
    }
    return Launch(write_cache_kernel, (slot_mapping.shape[0],), arguments, constants)


def _token_scales(
    cache: Tensor, k_scale: float | Tensor, v_scale: float | Tensor
) -> tuple[Tensor, Tensor] | None:
    """The scale tensors of an int8 cache, None for every other."""
    if cache.dtype == torch.int8:
        if isinstance(k_scale, Tensor) and isinstance(v_scale, Tensor):
            return k_scale, v_scale
        raise ValueError("an int8 cache needs k_scale and v_scale tensors [N, P, Hk] float32")
    if isinstance(k_scale, Tensor) or isinstance(v_scale, Tensor):
        raise ValueError(f"a {cache.dtype} cache takes k_scale and v_scale as numbers")
    return None
