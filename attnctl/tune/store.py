"""Puts a tune's result into a profile file that others may be writing too. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from attnctl.documents.files import MissingFileError, reason, write_whole
from attnctl.exits import InputError
from attnctl.profile.canonical import encode
from attnctl.profile.document import read_to_add
from attnctl.profile.keys import Key, Versions
from attnctl.profile.locking import locked
from attnctl.profile.match import same_key
from attnctl.profile.merge import check_mergeable, merge
from attnctl.profile.store import file_name, folder, save
from attnctl.profile.values import Profile


def store(path: str | None, new: Profile, environ: Mapping[str, str]) -> str:
    """Adds the new points to the file's, or to the user's own profiles; gives the file's name.

    What was just measured counts, whatever day the clock says. Two that store at once keep the
    union. InputError: the file holds another device's profile, or one of other versions, or none.
    """
    if path is None:
        return str(save(new, environ, in_order=True))
    with locked(path, environ):
        try:
            old = read_to_add(path)
        except MissingFileError:
            whole = new
        else:
            whole = merge(old, new, in_order=True)
        write_whole(path, encode(whole))
    return path


def journal_base(path: str | None, environ: Mapping[str, str]) -> str:
    """What a journal's name begins with: the profile's, or one in the user's own folder."""
    if path is not None:
        return path
    where = folder(environ)
    if where is None:
        raise InputError(
            "no folder for profiles: neither XDG_DATA_HOME nor HOME is set; set one of them, or "
            "name a file with --output"
        )
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{where} cannot be written: {reason(error)}") from error
    return str(where / "tune")


def refuse_foreign(path: str, key: Key, versions: Versions | None = None) -> None:
    """InputError, before hours of measuring: the file is another device's, or no profile.

    versions: those that the new times hold for, once they are known.
    """
    try:
        old = read_to_add(path)
    except MissingFileError:
        return
    if not same_key(old.key, key):
        raise InputError(
            f"{path}: it holds times of {old.key}, and this is {key}: name another --output"
        )
    if versions is not None:
        check_mergeable(old, Profile(name="what this tune measures", key=key, versions=versions))


def refuse_damaged(key: Key, versions: Versions, environ: Mapping[str, str]) -> None:
    """InputError, before hours of measuring: the user's own file for the result does not read."""
    where = folder(environ)
    if where is None:
        return
    try:
        read_to_add(where / file_name(Profile(name="", key=key, versions=versions)))
    except MissingFileError:
        return
    except InputError as error:
        raise InputError(f"{error}; move it away, or name another file with --output") from error
