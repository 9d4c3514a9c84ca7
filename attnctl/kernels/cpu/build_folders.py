"""The folders in which shared objects are kept: whose they must be, and whether one has room."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

LEAST_ROOM = 4 << 20
"""Bytes that must be free for a build: the largest source leaves 1.5 MB of assembly and code."""


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """The first folder that can be written and that no other user can write to."""
    return next((folder for folder, unfit in cache_folders(environ).items() if not unfit), None)


def cache_folders(environ: Mapping[str, str]) -> dict[Path, str]:
    """Folder -> why nothing may be loaded from it, "" where it may; the best one first."""
    choices = []
    cache, home = Path(environ.get("XDG_CACHE_HOME", "")), Path(environ.get("HOME", ""))
    # the specification has a relative path ignored
    if cache.is_absolute():
        choices.append(cache / "attnctl")
    elif home.is_absolute():
        choices.append(home / ".cache" / "attnctl")
    temporary = environ.get("TMPDIR") or _temporary()
    choices.append(Path(temporary) / f"attnctl-{os.geteuid()}")
    return {folder: _unfit(folder) for folder in choices}


def no_room(state: os.statvfs_result, user: int) -> str:
    """Why a user's compiler need not begin to write to a file system; "" where it may."""
    free = (state.f_bavail if user else state.f_bfree) * state.f_frsize
    # one that does not count its blocks says that it has none, and none free
    if state.f_blocks and free < LEAST_ROOM:
        return f"{free / 1e6:.1f} MB are free, and a build takes {LEAST_ROOM / 1e6:.1f}"
    return ""


def _temporary() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # it writes a file to find out, and there is no room anywhere
        return "/tmp"


def _unfit(folder: Path) -> str:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state, mounted = folder.stat(), os.statvfs(folder)
    except OSError as error:
        return error.strerror or str(error)
    # what lies here is loaded as code: it must be this user's alone
    if state.st_uid != os.geteuid():
        return "it is another user's"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "it cannot be written"
    return "mounted noexec: no code is loaded from there" if mounted.f_flag & os.ST_NOEXEC else ""
