"""The lock of a profile's file: who adds to it, prunes it or deletes it waits for the others."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from attnctl.documents.files import Path, real_path, reason
from attnctl.exits import InputError
from attnctl.profile.places import folder

LOCK = ".lock"
_NO_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
"""What a file system says that locks no folder, as NFS, which wants a lock's file writable."""


@contextlib.contextmanager
def locked(path: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Holds the lock of the folder in which the file lies, whatever links lead to it.

    In the user's own folder that is a file of its own, elsewhere the folder itself, which leaves
    nothing behind. InputError: nothing can be written there.
    """
    where = os.path.dirname(real_path(path))  # noqa: PTH120
    own = folder(environ)
    try:
        if own is not None and where == os.path.realpath(own):
            os.makedirs(where, exist_ok=True)  # noqa: PTH103
            descriptor = os.open(f"{where}/{LOCK}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        else:
            descriptor = os.open(where, os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{where} cannot be written: {reason(error)}") from error
    try:
        _wait_for(descriptor)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int) -> None:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # hours of measuring are worth more than what two writers at once may lose
        if error.errno not in _NO_LOCKS:
            raise
