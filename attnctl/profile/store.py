"""The user's own profiles: one file per device and compiler, kept under XDG_DATA_HOME."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from attnctl.documents.files import reason, write_whole
from attnctl.exits import InputError
from attnctl.profile.canonical import encode
from attnctl.profile.document import read_profile, read_to_add, refuse_newer
from attnctl.profile.keys import UNKNOWN
from attnctl.profile.locking import LOCK, locked
from attnctl.profile.merge import merge
from attnctl.profile.places import folder as folder
from attnctl.profile.values import Profile


def file_name(profile: Profile) -> str:
    """The name of the file that holds a device's timings made with one torch and one Triton."""
    key, versions = profile.key, profile.versions
    parts = [key.vendor, key.arch, key.pci_id, key.unit_count]
    parts += [f"{name}-{v}" for name in ("torch", "triton") if (v := getattr(versions, name))]
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.") for part in parts if part)
    return "_".join(word or "any" for word in words) + ".json"


def save(
    profile: Profile,
    environ: Mapping[str, str],
    *,
    in_order: bool = False,
    here: Mapping[str, str] | None = None,
) -> Path:
    """Adds a profile to the user's own and gives the file that holds both.

    in_order, here: as attnctl.profile.merge.merge takes them. Two that save at once keep the union.
    Raises InputError where there is no folder that can be written, where a version is unknown (its
    timings could never be matched), or where the file that is there does not read.
    """
    refuse_unknown(profile)
    where = folder(environ)
    if where is None:
        raise InputError(
            "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them, or "
            "name a file with --profile"
        )
    path = where / file_name(profile)
    with locked(path, environ):
        if path.exists():
            profile = merge(read_to_add(path), profile, in_order=in_order, here=here)
        write_whole(str(path), encode(profile))
    return path


def rewrite(path: str, change: Callable[[Profile], Profile], environ: Mapping[str, str]) -> None:
    """Replaces a profile by what `change` makes of it as it then is; nobody adds in between."""
    with locked(path, environ):
        found = read_profile(path)
        refuse_newer(found, path)
        write_whole(path, encode(change(found)))


def remove(paths: tuple[Path, ...], environ: Mapping[str, str]) -> None:
    """Deletes files of the user's profiles, all that can be; InputError where one cannot."""
    left = []
    for path in paths:
        # a link is deleted, not what it leads to
        with locked(path.parent / LOCK, environ):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                left.append(f"{path} cannot be deleted: {reason(error)}")
    if left:
        raise InputError("; ".join(left))


def refuse_unknown(profile: Profile) -> None:
    """InputError: it says that a version of its compilers could not be told."""
    for field in ("torch", "triton"):
        if getattr(profile.versions, field) == UNKNOWN:
            raise InputError(
                f"{profile.name}: versions.{field} is unknown, so that its timings could not be "
                "told from another's; tune again where it can be told"
            )
