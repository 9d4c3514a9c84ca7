"""What a program hands to the library, checked where it comes in: one sentence, no TypeError."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from attnctl.exits import InputError

LONGEST = 80


def refuse_other(name: str, value: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
    """InputError where an argument is of none of these types; wanted: what to give instead."""
    if not isinstance(value, kinds):
        raise InputError(f"{name} {shown(value)}: give {wanted}")


def refuse_no_index(name: str, value: Any) -> None:
    """InputError where a device or a layer is not named by a number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{name} {shown(value)}: give its index, a whole number")


def refuse_no_count(name: str, value: Any, least: int = 0) -> None:
    """InputError where a number of things is no whole number from `least` on."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} {shown(value)}: give a whole number from {least} on")


def shown(value: Any) -> str:
    """A value as a message may hold it: in one line, and short; of large ones the type."""
    text = repr(value)
    if len(text) <= LONGEST and text.isprintable():
        return text
    return f"(a value of type {type(value).__qualname__})"
