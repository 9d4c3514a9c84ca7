"""What the children share: one error per field, and opening a library by one of its names."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from attnctl.probe.host import HostError


def field(question: Callable[[], Any]) -> dict[str, Any]:
    """{"value": answer} or {"error": why not}, so that one refused field costs no other."""
    try:
        value = question()
    except Exception as error:
        return {"error": sentence(error)}
    return {"value": text(value) if isinstance(value, bytes) else value}


def sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def open_library(names: Iterable[str]) -> ctypes.CDLL:
    """The first that opens. HostError "absent" where none is there, "failed" where one is broken.

    names: sonames, or full paths where the loader does not look by itself.
    """
    tried, broken = [], []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(name)
            # a file that is there and misses a dependency is named by that dependency's name
            if not str(error).startswith(f"{name}: cannot open shared object"):
                broken.append(str(error))
    if broken:
        raise HostError("failed", "; ".join(broken))
    raise HostError("absent", f"not found: {', '.join(tried)}")


def print_answer(answer: Callable[[], Any]) -> None:
    """Prints what a child would answer, for a person who runs the module by hand."""
    import json

    try:
        told = answer()
    except HostError as error:
        told = {"error": [error.kind, error.detail]}
    print(json.dumps(told, indent=1))
