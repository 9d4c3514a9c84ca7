"""Whether a plug-in's declaration is well made. Nothing checks the fields of a value when it is
built, and a wrong one would surface far away, in a command that has nothing to do with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from attnctl.layer import OPS
from attnctl.machine import VENDORS
from attnctl.requirements.rule import Rule

if TYPE_CHECKING:
    from attnctl.registry import Backend, Rank

PLATFORMS = (*VENDORS, "cpu")
KERNELS = ("bundled", "adapter", "planned")
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def check(backend: Backend, taken: Collection[str]) -> None:
    """TypeError or ValueError names the field that is wrong, what it holds and what it should."""
    _want("name", backend.name, _is_name, "capitals, digits and _ (MY_ATTN)")
    if backend.name in taken:
        raise ValueError(f"the name {backend.name} is taken")
    _want("summary", backend.summary, lambda x: isinstance(x, str) and x != "", "a sentence")
    known = (*dict.fromkeys(OPS.values()), "diffkv")
    _want("ops", backend.ops, lambda x: _all(x, lambda op: op in known), f"some of {known}")
    _want("rules", backend.rules, lambda x: _all(x, _is_rule), "Rules of attnctl.requirements")
    _want("kernel", backend.kernel, lambda x: x in KERNELS, f"one of {KERNELS}")
    _want("is_ssm", backend.is_ssm, lambda x: isinstance(x, bool), "true or false")
    _want("ranks", backend.ranks, lambda x: isinstance(x, tuple), "a tuple of Ranks")
    for rank in backend.ranks:
        _check_rank(rank)
    _want("block_sizes", backend.block_sizes, lambda x: x == () or _all(x, _is_count), "counts")
    for field in ("block_multiple", "prefers_block"):
        _want(field, getattr(backend, field), lambda x: x is None or _is_count(x), "a count")


def _check_rank(rank: Rank) -> None:
    _want("ranks: platform", rank.platform, lambda x: x in PLATFORMS, f"one of {PLATFORMS}")
    _want("ranks: place", rank.place, _is_count, "a whole number above 0")
    _want("ranks: why", rank.why, lambda x: isinstance(x, str), "a phrase")
    _want("ranks: when", rank.when, lambda x: x is None or callable(x), "a test or nothing")


def _want(field: str, value: object, good: Callable[[Any], bool], wanted: str) -> None:
    if not good(value):
        raise TypeError(f"{field} is {value!r}, wanted {wanted}")


def _all(values: object, good: Callable[[Any], bool]) -> bool:
    return isinstance(values, tuple) and bool(values) and all(good(value) for value in values)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_rule(value: object) -> bool:
    return isinstance(value, Rule) and isinstance(value.code, str) and callable(value.check)
