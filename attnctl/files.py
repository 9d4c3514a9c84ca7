"""Files that the user names: read whole, written whole or not at all."""

from __future__ import annotations

import os

from attnctl.exits import InputError


def read_bytes(path: str) -> bytes:
    """The bytes of a file; InputError names it where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (pathlib costs start-up here)
            return file.read()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {_reason(error)}") from error


def write_whole(path: str, data: bytes) -> None:
    """Writes beside the file and renames over it, so that a reader never sees half of it."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:  # noqa: PTH123
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105
    except (OSError, ValueError) as error:
        _discard(part)
        raise InputError(f"{path} cannot be written: {_reason(error)}") from error


def _discard(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except (OSError, ValueError):
        return


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
