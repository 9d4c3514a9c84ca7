"""The user's own profiles: one file per device and compiler, kept under XDG_DATA_HOME."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnctl.exits import InputError
from attnctl.files import reason, write_whole
from attnctl.profile.canonical import encode
from attnctl.profile.document import read_profile
from attnctl.profile.merge import merge
from attnctl.profile.values import UNKNOWN, Profile

LOCK = ".lock"


def folder(environ: Mapping[str, str]) -> Path | None:
    """Where this user's profiles are kept; None where neither XDG_DATA_HOME nor HOME is set."""
    data, home = environ.get("XDG_DATA_HOME", ""), environ.get("HOME", "")
    # the specification has a relative path ignored
    if os.path.isabs(data):  # noqa: PTH117
        return Path(data) / "attnctl" / "profiles"
    if os.path.isabs(home):  # noqa: PTH117
        return Path(home) / ".local" / "share" / "attnctl" / "profiles"
    return None


def files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files of the user's profiles, sorted; none where the folder is not there or not ours."""
    where = folder(environ)
    return () if where is None else json_files(where)


def json_files(where: Path) -> tuple[Path, ...]:
    """The JSON files of a folder, sorted by name; none where it cannot be read."""
    try:
        return tuple(sorted(path for path in where.iterdir() if path.suffix == ".json"))
    except OSError:
        return ()


def file_name(profile: Profile) -> str:
    """The name of the file that holds a device's timings made with one torch and one Triton."""
    key, versions = profile.key, profile.versions
    parts = [key.vendor, key.arch, key.pci_id, key.unit_count]
    parts += [f"{name}-{v}" for name in ("torch", "triton") if (v := getattr(versions, name))]
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.") for part in parts if part)
    return "_".join(word or "any" for word in words) + ".json"


def save(profile: Profile, environ: Mapping[str, str]) -> Path:
    """Adds a profile to the user's own and gives the file that holds both.

    Two that save at once keep the union. Raises InputError where there is no folder that can be
    written, where a version is unknown (its timings could never be matched), or where the file that
    is there does not read.
    """
    _refuse_unknown(profile)
    where = folder(environ)
    if where is None:
        raise InputError(
            "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them, or "
            "name a file with --profile"
        )
    path = where / file_name(profile)
    with _locked(where):
        kept = merge(read_profile(path), profile) if path.exists() else profile
        write_whole(str(path), encode(kept))
    return path


def remove(paths: tuple[Path, ...], environ: Mapping[str, str]) -> None:
    """Deletes files of the user's profiles; InputError where one cannot be."""
    where = folder(environ)
    if not paths or where is None:
        return
    with _locked(where):
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{path} cannot be deleted: {reason(error)}") from error


def _refuse_unknown(profile: Profile) -> None:
    for field in ("torch", "triton"):
        if getattr(profile.versions, field) == UNKNOWN:
            raise InputError(
                f"{profile.name}: versions.{field} is unknown, so that its timings could not be "
                "told from another's; tune again where it can be told"
            )


@contextlib.contextmanager
def _locked(where: Path) -> Iterator[None]:
    """Holds the folder's lock; whoever else writes waits."""
    import fcntl

    try:
        where.mkdir(parents=True, exist_ok=True)
        with (where / LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise InputError(f"{where} cannot be written: {reason(error)}") from error
