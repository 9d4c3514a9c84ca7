"""Which values of attention's parameters make sense: asked once, when they are put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from msgspec.structs import force_setattr
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.case_values import LARGEST_CAP, LEAST_CAP

if TYPE_CHECKING:
    from attnctl.ops.indexer import Indexing
    from attnctl.ops.mla import Latent
    from attnctl.ops.paged import Paged

FARTHEST = 1 << 40
"""A span of keys that excludes none: longer ones are cut to it, so that sums with it stay exact."""

LARGEST = 3.4028234663852886e38
"""Of float32, in which kernels multiply with scales."""

LEAST = 1.1754943508222875e-38
"""Of float32's normal numbers: a scale below is 0, as it is in a kernel."""

_INDEXING = "Indexing"

LEAST_SCALE = 1e-30
"""Of a cache's scale, through which what is stored is divided: 1 over it is a number of float32."""


def settle(params: Paged) -> None:
    """Makes numbers plain ones and a softcap of 0 none. InputError: a value that means nothing.

    Written out name by name, as a program may put its parameters together for each call.
    """
    _set(params, "scale", params.scale, _scale)
    _check_flag("causal", params.causal)
    if params.window is not None:
        _set(params, "window", params.window, _span)
        if params.window == 0 and not params.causal:
            # of the tokens about it a row would see those to the right alone: keys with a hole in
            # them, which no model asks for
            wanted = "must be 1 or more where causal is False, as it counts the token itself"
            _refuse("window", wanted, 0)
    if params.window_right is not None:
        _set(params, "window_right", params.window_right, _span)
    if params.chunk is not None:
        _set(params, "chunk", params.chunk, _chunk)
    if params.softcap is not None:
        _set(params, "softcap", params.softcap, _softcap)
    k_scale, v_scale = params.k_scale, params.v_scale
    if k_scale != 1.0 if type(k_scale) is float else not isinstance(k_scale, Tensor):
        _set(params, "k_scale", k_scale, _cache_scale)
    if v_scale != 1.0 if type(v_scale) is float else not isinstance(v_scale, Tensor):
        _set(params, "v_scale", v_scale, _cache_scale)
    if params.sinks is not None:
        _check_of_heads("sinks", params.sinks)
    if params.alibi_slopes is not None:
        _check_of_heads("alibi_slopes", params.alibi_slopes)
    if params.prefix_ranges is not None:
        _set(params, "prefix_ranges", params.prefix_ranges, _ranges)


def settle_latent(params: Latent) -> None:
    """The same of a layer of latent attention; its rank is compared with the cache's rows later."""
    for name, settled in (("scale", _scale), ("kv_scale", _cache_scale)):
        given = getattr(params, name)
        found = settled(name, given, "Latent")
        if found is not given:
            force_setattr(params, name, found)


def settle_indexing(params: Indexing) -> None:
    """The same of a lightning indexer."""
    topk = params.topk
    if isinstance(topk, bool) or not isinstance(topk, Integral) or not 0 <= topk <= FARTHEST:
        _refuse("topk", "must be how many tokens are picked, an integer from 0 on", topk, _INDEXING)
    scale = _scale("scale", params.scale, _INDEXING)
    if scale is not params.scale:
        force_setattr(params, "scale", scale)
    _check_flag("ue8m0", params.ue8m0, _INDEXING)


def _check_flag(name: str, value: Any, of: str = "Paged") -> None:
    if value is not True and value is not False and not (type(value) is int and value in (0, 1)):
        _refuse(name, "must be True or False", value, of)


def _set(params: Paged, name: str, value: Any, settled: Callable[[str, Any], Any]) -> None:
    found = settled(name, value)
    if found is not value:
        force_setattr(params, name, found)


def _number(name: str, value: Any, of: str = "Paged") -> float:
    if type(value) is float and -LARGEST <= value <= LARGEST:
        return value
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        _refuse(name, "must be a finite number", value, of)
    if not -LARGEST <= number <= LARGEST:
        _refuse(name, "must be a number of float32, in which kernels compute", value, of)
    return number


def _scale(name: str, value: Any, of: str = "Paged") -> float:
    scale = _number(name, value, of)
    return scale if scale == 0 or abs(scale) >= LEAST else 0.0


def _span(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        _refuse(name, f"must be None where there is none, else an integer from {least} on", value)
    return min(int(value), FARTHEST)


def _chunk(name: str, value: Any) -> int:
    return _span(name, value, 1)


def _softcap(name: str, value: Any) -> float | None:
    cap = _number(name, value)
    if cap == 0:
        return None
    if not LEAST_CAP <= cap <= LARGEST_CAP:
        limits = f"{LEAST_CAP:g} to {LARGEST_CAP:g}"
        _refuse(name, f"must be None or 0 where there is none, else {limits}", value)
    return cap


def _cache_scale(name: str, value: Any, of: str = "Paged") -> float:
    scale = _number(name, value, of)
    if scale == 0:
        _refuse(name, "must not be 0, by which nothing that is stored can be divided", value, of)
    if abs(scale) < LEAST_SCALE:
        _refuse(name, f"must be {LEAST_SCALE:g} or more, or less than minus that", value, of)
    return scale


def _check_of_heads(name: str, value: Any) -> None:
    if not isinstance(value, Tensor) or value.dim() != 1:
        _refuse(name, "must be a tensor [H], one a query head", value)
    if value.dtype.is_complex or value.is_neg():
        _refuse(name, "must hold real numbers as they lie in memory", value)


def _ranges(name: str, value: Any) -> Tensor:
    """In int32: ends beyond it, as of a range over everything, become its own ends."""
    if not isinstance(value, Tensor) or value.dim() != 3 or value.shape[2] != 2:
        _refuse(name, "must be a tensor [B, M, 2]", value)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        _refuse(name, "must hold integers", value)
    if value.dtype.itemsize < torch.int64.itemsize:
        return value
    limits = torch.iinfo(torch.int32)
    return value.to(torch.int64).clamp(limits.min, limits.max).to(torch.int32)


def _refuse(name: str, wanted: str, value: Any, of: str = "Paged") -> NoReturn:
    shown = (
        f"a tensor {list(value.shape)} of {value.dtype}"
        if isinstance(value, Tensor)
        else f"{value!r}"
    )
    raise InputError(f"{of}: {name} {wanted}; it is {shown[:80]}")
