"""Knobs of the paged kernels by flat names, as a profile writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attnctl.exits import InputError
from attnctl.kernels.triton.launch import Tiles
from attnctl.kernels.triton.paged.plan import Knobs
from attnctl.tune.settings import check_knobs

Changes = dict[str, Any]
POWERS = (".rows", ".keys", ".warps")


def flat(knobs: Knobs) -> dict[str, int | bool]:
    """Knobs by flat names: {"fill": 2, "decode.keys": 64, ...}."""
    found: dict[str, int | bool] = {}
    for name in knobs.__struct_fields__:
        value = getattr(knobs, name)
        if isinstance(value, Tiles):
            found |= {f"{name}.{field}": getattr(value, field) for field in value.__struct_fields__}
        elif value is not None:  # unset, another knob's value holds there
            found[name] = value
    return found


def changed(base: Knobs, changes: Mapping[str, Any]) -> Knobs:
    """The knobs with these changed. The names are those of `flat`."""
    whole: dict[str, Any] = {}
    tiles: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        group, dot, field = name.partition(".")
        if dot:
            tiles.setdefault(group, {})[field] = value
        else:
            whole[name] = value
    for group, fields in tiles.items():
        whole[group] = msgspec.structs.replace(getattr(base, group), **fields)
    return msgspec.structs.replace(base, **whole)


def checked(name: str, changes: Mapping[str, Any]) -> Changes:
    """InputError: a knob that there is not, or a value of another type or sign."""
    found = check_knobs(name, changes, flat(Knobs()))
    for knob, value in found.items():
        number = int(value)
        if number < 0 or (knob.endswith(POWERS) and (number < 1 or number & (number - 1))):
            raise InputError(f"{name}: knob {knob} is {number}: must be a power of two")
        if knob.endswith(".stages") and number < 1:
            raise InputError(f"{name}: knob {knob} is {number}: must be at least 1")
    return dict(found)
