"""A case: one set of parameters of an operation, with a text form that pastes back as a filter.

`paged(batch=3,heads=8)` names only what differs from the operation's defaults; the hash of that
text is the seed of its inputs, so a failure comes back in one command.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

import msgspec

from attnctl.exits import InputError
from attnctl.nearest import did_you_mean

Value = int | float | str | bool | None

_TEXT = re.compile(r"^(?P<op>\w+)\((?P<params>.*)\)$")


class Case(msgspec.Struct, frozen=True):
    """An operation's name and every parameter, defaults included."""

    op: str
    params: dict[str, Value]
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def seed(self) -> int:
        return int.from_bytes(hashlib.sha256(self.text.encode()).digest()[:4], "big")

    def __getitem__(self, name: str) -> Value:
        return self.params[name]

    def count(self, name: str) -> int:
        """A whole number. InputError where the text gave something else."""
        value = self.params[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"{self}: {name} must be a whole number, found {value!r}")
        return value

    def positive(self, name: str) -> int | None:
        """A whole number, None where it is 0: the feature is off."""
        return self.count(name) or None


def make_case(op: str, defaults: Mapping[str, Value], /, **changes: Value) -> Case:
    """The case with these parameters changed from the defaults. InputError on an unknown one."""
    unknown = [name for name in changes if name not in defaults]
    if unknown:
        near = did_you_mean(unknown[0], defaults) or f" It has {', '.join(defaults)}."
        raise InputError(f"{op}: no such parameter: {', '.join(unknown)}.{near}")
    different = {k: v for k, v in changes.items() if v != defaults[k]}
    ordered = {name: different[name] for name in defaults if name in different}
    text = ",".join(f"{name}={_show(value)}" for name, value in ordered.items())
    return Case(op, {**defaults, **changes}, f"{op}({text})")


def split_case(text: str) -> tuple[str, dict[str, Value]]:
    """The operation and the parameters named in a case's text."""
    found = _TEXT.match(text.strip())
    if found is None:
        raise InputError(f"{text!r} is not a case: write it as op(name=value,...)")
    params: dict[str, Value] = {}
    for part in filter(None, (p.strip() for p in found["params"].split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{text!r}: {part!r} is not name=value")
        name = name.strip()
        if name in params:
            raise InputError(f"{text!r}: {name} is given twice")
        params[name] = _read(value.strip())
    return found["op"], params


def _show(value: Value) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _read(text: str) -> Value:
    words: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
