"""Where a command's answer goes: JSON, aligned text for pipes, or a drawing on a terminal."""

from __future__ import annotations

import os
import sys
from io import UnsupportedOperation
from stat import S_ISCHR
from typing import TYPE_CHECKING, Any, TextIO

from attnctl.exits import InputError

if TYPE_CHECKING:
    from attnctl.render.view import View


LONGEST = 4000
"""Characters of a remark: a file may hold names of any length."""


class Output:
    """One stream with what it can show; None of a field means: ask the stream."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        terminal: bool | None = None,
        width: int | None = None,
        colour: bool | None = None,
    ) -> None:
        self.stream = _standard_output() if stream is None else stream
        self.terminal = _is_terminal(self.stream) if terminal is None else terminal
        self._width = width
        self.colour = _wants_colour() if colour is None else colour

    def json(self, value: Any) -> None:
        """The value as indented JSON."""
        from attnctl.documents.files import as_json

        self.text(as_json(value).decode())

    def view(self, view: View) -> None:
        """The view, drawn as this stream can show it."""
        if self.terminal:
            from attnctl.render.terminal import drawn

            self.text(drawn(view, self.width, self.colour))
        else:
            from attnctl.render.plain import plain

            self.text(plain(view))

    def text(self, text: str) -> None:
        """Writes all of it; a reader who has left is not an error, and a full disk is one."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        try:
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()
        except BrokenPipeError:
            _close_quietly(self.stream)
        except (OSError, ValueError) as error:
            _close_quietly(self.stream)
            raise _unwritten(error) from error

    def save(self, data: bytes, path: str) -> None:
        """Writes a file whole, or to this stream where that is what the path means."""
        if self.is_at(path):
            self.text(data.decode())
        else:
            from attnctl.documents.files import write_whole

            write_whole(path, data)

    def refuse_unwritable(self, *paths: str) -> None:
        """InputError where save could write nothing there, before what is to be saved is made."""
        from attnctl.documents.files import refuse_unwritable

        for path in paths:
            self.refuse_full() if self.is_at(path) else refuse_unwritable(path)

    def refuse_full(self) -> None:
        """InputError where this stream could take no answer, before minutes of work for one."""
        from attnctl.documents.files import refuse_full

        try:
            refuse_full(self.stream.fileno())
        except UnsupportedOperation:  # no file of the system
            return
        except (OSError, ValueError) as error:
            raise _unwritten(error) from error

    def is_at(self, path: str) -> bool:
        """Whether a path means this stream: "-", a name of it, or the file that it leads to."""
        if path in ("-", "/dev/stdout", "/dev/fd/1"):
            return True
        try:
            here, there = os.fstat(self.stream.fileno()), os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return False
        # a device that keeps nothing, or shows all, may well be both
        return os.path.samestat(here, there) and not S_ISCHR(here.st_mode)

    @property
    def width(self) -> int:
        if self._width is not None:
            return self._width
        from shutil import get_terminal_size

        return max(40, get_terminal_size().columns)


def _unwritten(error: Exception) -> InputError:
    why = getattr(error, "strerror", None) or str(error)
    return InputError(f"standard output cannot be written: {why}")


def remark(text: str) -> None:
    """One line on standard error, without what a terminal would obey."""
    line = " ".join(text.split())
    line = "".join(one if one.isprintable() else "?" for one in line)
    to_stderr(f"attnctl: {line if len(line) <= LONGEST else line[:LONGEST] + '...'}\n")


def to_stderr(text: str) -> None:
    """Writes to standard error; where that is closed or full there is nobody to tell."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _close_quietly(sys.stderr)


def _standard_output() -> TextIO:
    # Python sets no sys.stdout where the file descriptor was closed before it started
    if sys.stdout is None:
        raise InputError("standard output is closed, so that no answer can be written")
    return sys.stdout


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _wants_colour() -> bool:
    """NO_COLOR (no-color.org) counts when it is not empty; a dumb terminal knows no escapes."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def _close_quietly(stream: TextIO) -> None:
    # what is still in the buffer would raise again when the interpreter flushes it at exit
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return
