"""The folders in which shared objects are kept: whose they must be, and whether one has room.

A build goes to a folder of its own in one of them; what a killed one left a later one removes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

LEAST_ROOM = 4 << 20
"""Bytes that must be free for a build: the largest source leaves 1.5 MB of assembly and code."""

LEFT_AFTER_S = 24 * 3600
"""Seconds in which nothing was written to a folder that nobody builds in any more: a compiler has
five minutes, and a day lets a machine sleep in between."""

_BUILD = re.compile(r"\w+-[0-9a-f]{20}\w{8}")
"""The name of such a folder: that of its shared object, and what tells it from another's."""


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


def clear(folder: Path) -> None:
    """Removes the folders of builds that were killed, and none in which one may be going on."""
    before = time.time() - LEFT_AFTER_S
    try:
        with os.scandir(folder) as entries:
            old = [one.path for one in entries if _BUILD.fullmatch(one.name) and _left(one, before)]
    except OSError:  # another process clears it
        return
    for path in old:
        shutil.rmtree(path, ignore_errors=True)


def _left(entry: os.DirEntry[str], before: float) -> bool:
    state = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(state.st_mode) and state.st_mtime < before


def lack_of_room(folder: Path) -> str:
    """Why no build is begun in a folder, "" where one may be; what killed ones left makes room."""
    why = no_room(os.statvfs(folder), os.geteuid())
    if not why:
        return ""
    clear(folder)
    return no_room(os.statvfs(folder), os.geteuid())


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
