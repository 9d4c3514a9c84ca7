"""Spellings of number formats, and the dtype that a config states."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.model.keys import Keys, Value

_SPELLINGS = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
    "float64": "float64",
    "double": "float64",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}


def canonical(name: str) -> str | None:
    """The usual name of a number format ("torch.half" -> "float16"), or None."""
    return _SPELLINGS.get(name.strip().lower().removeprefix("torch."))


def stated(keys: Keys, *names: str) -> Value[str] | None:
    """The number format under one of `names`; a name nobody knows counts as not given."""
    for name in names:
        given = keys.raw(name)
        if given is None:
            continue
        value = given.value
        if isinstance(value, dict):  # composite models may give one per part; "" is the rest
            value = value.get("") or value.get("default")
        if value is None:
            continue
        if not isinstance(value, str):
            raise keys.wrong(given, 'a dtype name such as "bfloat16"')
        known = canonical(value)
        if known is not None:
            return Value(known, given.source)
        if value not in ("auto", ""):
            keys.note(f"{given.source} {value!r} is no dtype known here: taken as not given")
    return None


def model_dtype(levels: Iterable[Keys]) -> Value[str] | None:
    """The dtype of the outermost level that states one; `dtype` wins over `torch_dtype`."""
    for keys in levels:
        new, old = stated(keys, "dtype"), stated(keys, "torch_dtype")
        if new is not None and old is not None and new.value != old.value:
            keys.note(f"{new.source} {new.value} wins over {old.source} {old.value}")
        if new is not None or old is not None:
            return new or old
    return None
