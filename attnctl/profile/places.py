"""Where profiles lie: the user's folder under XDG_DATA_HOME, and that of the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnctl.profile.shelf import Shelf

VARIABLE = "ATTNCTL_PROFILE"
NONE = "none"
"""In place of a file: no profile at all, the default order and the default knobs."""


def folder(environ: Mapping[str, str]) -> Path | None:
    """Where this user's profiles are kept; None where neither XDG_DATA_HOME nor HOME is set."""
    data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    # the specification has a relative path ignored
    if os.path.isabs(data):  # noqa: PTH117
        return Path(data) / "attnctl" / "profiles"
    if os.path.isabs(home):  # noqa: PTH117
        return Path(home) / ".local" / "share" / "attnctl" / "profiles"
    return None


def bundled_folder() -> Path:
    """The folder of the shipped profiles: in an installed wheel, or beside a checkout's package."""
    package = Path(__file__).parent.parent
    installed = package / "profiles" / "tuned"
    return installed if installed.is_dir() else package.parent / "profiles" / "tuned"


def user_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files of the user's profiles; none where there is no folder, or none that can be read."""
    where = folder(environ)
    return () if where is None else json_files(where)


def json_files(where: Path) -> tuple[Path, ...]:
    """The JSON files of a folder, sorted by name; none where it cannot be read.

    A pipe is none: reading it would wait for a writer that may never come.
    """
    try:
        found = (path for path in where.iterdir() if path.suffix == ".json")
        return tuple(sorted(path for path in found if not _is_pipe(path)))
    except OSError:
        return ()


def _is_pipe(path: Path) -> bool:
    """Whether it is one, as far as can be told: a link may lead to where nobody may look."""
    try:
        return path.is_fifo()
    except OSError:
        return False  # whoever reads it is told why it cannot be


def shelf(option: str | None, environ: Mapping[str, str]) -> Shelf | None:
    """The profiles to look in; None where there is no file of any, and nothing of it is loaded."""
    named = option or environ.get(VARIABLE)
    if not named and not user_files(environ) and not json_files(bundled_folder()):
        return None
    from attnctl.profile.shelf import Shelf

    return Shelf(option, environ)
