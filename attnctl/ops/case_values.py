"""Which values of a case's parameters make inputs: asked of a pasted text before anything runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from attnctl.exits import InputError
from attnctl.layer import KV_DTYPES
from attnctl.ops.case import Case, Value

# far beyond any model, and small enough that a product of two is an honest memory error
MOST_TOKENS = 2**24
LARGEST_WIDTH = 2**20
LARGEST_PAGE = 2**16
"""Tokens: far beyond any engine's pages, of which each is filled even where one token is used."""

LEAST_CAP, LARGEST_CAP = 1e-30, 1e30
"""Of a softcap: beyond these it, or one over it, is no number of float32."""

LARGEST = sys.float_info.max

_LENGTHS = ("queries", "contexts")
_LISTS = (*_LENGTHS, "accepted")
_AT_LEAST_1 = frozenset(
    {
        *("heads", "kv_heads", "k_heads", "v_heads", "index_heads", "groups"),
        *("head_size", "head_dim", "head_k_dim", "lora", "v"),
        *("channels", "state_size", "width", "page", "topk"),
    }
)
# spans of keys: any number of tokens, however few there are
_SPANS = frozenset({"window", "window_right", "chunk"})
# parameter -> of which other one it must be a multiple
_MULTIPLES = (("heads", "kv_heads"), ("v_heads", "k_heads"), ("heads", "groups"))

_DTYPES = ("float16", "bfloat16", "float32")
_WORDS: dict[str, tuple[str, ...]] = {
    "dtype": _DTYPES,
    "state_dtype": _DTYPES,
    "weights": _DTYPES,
    "kv_cache_dtype": tuple(KV_DTYPES),
    "query_dtype": ("auto", "fp8_e4m3"),
    "layout": ("NHD", "HND"),
    "form": ("absorbed", "uncompressed"),
    "picks": ("first", "holes", "nothing", "stray", "indexer"),
    "initial": ("all", "mixed", "fresh"),
    "verified": ("all", "mixed", "last"),
    "empty": ("neither", "a", "b", "both", "mixed"),
    "absent": ("-inf", "inf"),
    "d": ("off", "head", "channel"),
}
_CONV_LAYOUTS = ("SD", "DS")

_LIST = re.compile(r"(\d{1,12}(\+\d{1,12})*)?", re.ASCII)


def refuse_impossible(case: Case, defaults: Mapping[str, Value]) -> None:
    """InputError for the first value of which no inputs can be made.

    defaults: every parameter of the operation with a value of its own type.
    """
    for name, default in defaults.items():
        fault = _fault(case, name, default)
        if fault:
            raise InputError(f"{case}: {name} {fault}, found {_shown(case[name])}")
    for name, unit in _MULTIPLES:
        if name in defaults and unit in defaults and case.count(name) % case.count(unit):
            values = f"found {case[name]} and {case[unit]}"
            raise InputError(f"{case}: {name} must be a multiple of {unit}, {values}")
    _refuse_lengths(case)
    if case.op == "short_conv":
        _refuse_columns(case)


def _fault(case: Case, name: str, default: Value) -> str:
    """What the value must be and is not, "" where it is that."""
    value = case[name]
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "must be true or false"
    if name in _LISTS:
        return _list_fault(case, name)
    if isinstance(default, int):
        return _whole_fault(name, value)
    if isinstance(default, float):
        return _number_fault(name, value)
    words = _CONV_LAYOUTS if case.op == "short_conv" and name == "layout" else _WORDS[name]
    return "" if str(value) in words else f"must be one of {', '.join(words)}"


def _list_fault(case: Case, name: str) -> str:
    value = case[name]
    if isinstance(value, bool) or _LIST.fullmatch(str(value)) is None:
        return "must be whole numbers of 0 or more, joined by +"
    numbers = _numbers(case, name)
    if name in _LENGTHS:
        return f"must be at most {MOST_TOKENS} tokens in all" if sum(numbers) > MOST_TOKENS else ""
    drafts = case.params["drafts"]
    most = 1 + drafts if isinstance(drafts, int) and drafts > 0 else 1
    if not numbers or not all(1 <= one <= most for one in numbers):
        return f"must be from 1 to {most}, as drafts is {drafts}"
    return ""


def _whole_fault(name: str, value: Value) -> str:
    least = 1 if name in _AT_LEAST_1 else 0
    most = MOST_TOKENS if name in _SPANS or name == "tokens" else LARGEST_WIDTH
    most = LARGEST_PAGE if name == "page" else most
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return f"must be a whole number from {least} to {most}"
    return ""


def _number_fault(name: str, value: Value) -> str:
    # compared, as a whole number may be longer than any float
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return "must be a finite number"
    if name == "softcap" and value != 0 and not LEAST_CAP <= value <= LARGEST_CAP:
        return f"must be 0, or from {LEAST_CAP:g} to {LARGEST_CAP:g}"
    return ""


def _refuse_lengths(case: Case) -> None:
    if "contexts" not in case.params:
        return
    queries, contexts = _numbers(case, "queries"), _numbers(case, "contexts")
    if len(queries) != len(contexts):
        counts = f"found {len(queries)} and {len(contexts)}"
        raise InputError(f"{case}: queries and contexts must name as many sequences, {counts}")
    for query, context in zip(queries, contexts, strict=True):
        if query > context:
            found = f"found {query} queries in a context of {context}"
            raise InputError(f"{case}: contexts count the queries too, {found}")


def _refuse_columns(case: Case) -> None:
    """A convolution keeps its taps' history and every draft in the columns of one slot."""
    columns, drafts = case.count("columns"), case.count("drafts")
    least = case.count("width") - 1 + drafts
    if 0 < columns < least:
        wanted = f"0, or {least} and more, as width is {case['width']} and drafts is {drafts}"
        raise InputError(f"{case}: columns must be {wanted}; found {columns}")
    step = {"all": 1, "mixed": 2}.get(str(case["verified"]))
    if not drafts or step is None:
        return
    for query in _numbers(case, "queries")[::step]:
        if query > 1 + drafts:
            wanted = f"{1 + drafts} and fewer in a sequence that is verified, as drafts is {drafts}"
            raise InputError(f"{case}: queries must be {wanted}; found {query}")


def _numbers(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case[name]).split("+") if part]


def _shown(value: Value) -> str:
    text = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    return text or "nothing"
