"""The scales of an FP8 cache, from those that a checkpoint has."""

from __future__ import annotations

import math
from numbers import Real

import msgspec

from attnctl.exits import InputError

UNCALIBRATED = "the checkpoint has no scales of the cache: 1.0, which nothing was calibrated for"


class CacheScales(msgspec.Struct, frozen=True):
    """k and v: for Paged's k_scale and v_scale. note: what a user should know of them, or ""."""

    k: float
    v: float
    note: str = ""


def cache_scales(k_scale: float | None = None, v_scale: float | None = None) -> CacheScales:
    """What K and V are multiplied with, given the scales of one layer in a checkpoint.

    None or a negative number, which serving engines put there before weights are loaded, is a
    scale that the checkpoint does not have. A lone one serves both. InputError: 0, or no finite
    number.
    """
    k, v = _known("k_scale", k_scale), _known("v_scale", v_scale)
    if k is None:
        if v is None:
            return CacheScales(1.0, 1.0, UNCALIBRATED)
        return CacheScales(v, v, "the checkpoint has no k_scale: its v_scale serves both")
    if v is None:
        return CacheScales(k, k, "the checkpoint has no v_scale: its k_scale serves both")
    return CacheScales(k, v)


def _known(name: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"cache_scales: {name} must be a finite number; it is {value!r}")
    if value == 0:
        raise InputError(f"cache_scales: {name} must not be 0: everything stored would read as 0")
    return float(value) if value > 0 else None
