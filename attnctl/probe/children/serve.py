"""The child's side: asks one module, writes one JSON object, and ends without ceremony."""

from __future__ import annotations

import os
from typing import Any

from attnctl.probe.host import HostError


def serve(module: str, args: str) -> None:
    """Writes {"ok": answer} or {"error": [kind, detail]} and a line feed to the first stdout."""
    import json

    # libraries print to file descriptor 1 as they like: it leads nowhere from here on
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    answer = _answer(module, json.loads(args))
    try:
        text = json.dumps(answer)
    except (TypeError, ValueError) as error:
        text = json.dumps(_failure(error))
    data = memoryview(text.encode() + b"\n")
    while data:
        data = data[os.write(out, data) :]
    # no destructors: some libraries crash or hang in theirs
    os._exit(0)


def _answer(module: str, args: list[Any]) -> dict[str, Any]:
    from importlib import import_module

    try:
        return {"ok": import_module(module).answer(*args)}
    except BaseException as error:  # even a library that calls sys.exit gets no further
        return _failure(error)


def _failure(error: BaseException) -> dict[str, Any]:
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, HostError):
        return {"error": [error.kind, error.detail]}
    if isinstance(error, (ImportError, FileNotFoundError)):
        return {"error": ["absent", detail]}
    if isinstance(error, PermissionError):
        return {"error": ["denied", detail]}
    return {"error": ["failed", detail]}
