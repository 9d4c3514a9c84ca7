"""Files that the user names: read whole up to a limit, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Any

from attnctl.exits import InputError

# many times the largest config.json, machine file, tape or profile that is known
SIZE_LIMIT = 16 * 2**20

Path = str | os.PathLike[str]


class MissingFileError(InputError):
    """No file is there: a reader that knows what was meant can say more."""


def read_bytes(path: Path, what: str) -> bytes:
    """The bytes of a file that should be a `what`; InputError names it where it cannot be read.

    Never more than SIZE_LIMIT bytes are held, so that a device that has no end is an error too.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (pathlib costs start-up here)
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} cannot be read: {reason(error)}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error
    if len(data) > SIZE_LIMIT:
        raise InputError(f"{path} is larger than {SIZE_LIMIT >> 20} MiB; that is no {what}")
    return data


def write_whole(path: str, data: bytes) -> None:
    """Replaces a file at once, so that a reader never sees half of it, and keeps its mode.

    A link is followed. What is no regular file (a device, a pipe) is written to, never replaced.
    """
    try:
        before = _status(path)
        if before is not None and not stat.S_ISREG(before.st_mode):
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(data)
        else:
            _replace(os.path.realpath(path) if os.path.islink(path) else path, data, before)  # noqa: PTH114
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {reason(error)}") from error


def refuse_unwritable(path: str) -> None:
    """InputError where write_whole could write no file there, before hours of work for it.

    The folder is tried with a file of another name, which is gone again at once: the rights that
    stat tells say nothing of a folder that no one can write to, as those of /proc. A byte in it
    tells a full disk. A device is opened and given nothing; nobody need read from a pipe yet.
    """
    if os.path.isdir(path):  # noqa: PTH112
        raise InputError(f"{path} cannot be written: it is a folder; name a file")
    folder = os.path.dirname(real_path(path))  # noqa: PTH120
    if not os.path.isdir(folder):  # noqa: PTH112
        raise InputError(f"{path} cannot be written: its folder does not exist")
    try:
        before = _status(path)
        if before is None or stat.S_ISREG(before.st_mode):
            _try_to_write(_part_of(folder))
        elif stat.S_ISCHR(before.st_mode):  # written to, whatever its folder
            with open(path, "wb", buffering=0) as device:  # noqa: PTH123
                refuse_full(device.fileno())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {reason(error)}; name another file") from error


def refuse_full(descriptor: int) -> None:
    """OSError where what is written to an open file would find no room; nothing is written."""
    state = os.fstat(descriptor)
    if stat.S_ISCHR(state.st_mode):
        os.write(descriptor, b"")
    elif stat.S_ISREG(state.st_mode):
        disk = os.fstatvfs(descriptor)
        free = disk.f_bavail if os.geteuid() else disk.f_bfree
        if disk.f_blocks and not free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def same_file(one: str, other: str) -> bool:
    """Whether two names lead to one file, which need not be there yet."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except (OSError, ValueError):
        return real_path(one) == real_path(other)


def real_path(path: Path) -> str:
    """The path without links; as it was given where the working folder was removed."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.fspath(path)


def as_json(value: Any) -> bytes:
    """The value as indented JSON, with a "?" for half a character (as in a path of other bytes)."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_whole_characters(msgspec.to_builtins(value)))
    return msgspec.json.format(data, indent=2) + b"\n"


def reason(error: Exception) -> str:
    """The system's words for an error, without its number and the file's name."""
    return getattr(error, "strerror", None) or str(error)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None


def _part_of(folder: str) -> str:
    """A name in this folder that no other file has."""
    return os.path.join(folder, f".attnctl-{os.urandom(6).hex()}.part")  # noqa: PTH118


def _try_to_write(part: str) -> None:
    """OSError where no file of this name can be made, or none of any size; it is gone again."""
    try:
        with open(part, "xb") as file:  # noqa: PTH123
            file.write(b"?")
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.unlink(part)  # noqa: PTH108


def _replace(path: str, data: bytes, before: os.stat_result | None) -> None:
    part = _part_of(os.path.dirname(path))  # noqa: PTH120
    try:
        with open(part, "xb") as file:  # noqa: PTH123
            if before is not None:
                with contextlib.suppress(OSError):  # only root may give a file away
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            os.unlink(part)  # noqa: PTH108
        raise


def _whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_characters(one) for one in value]
    return value
