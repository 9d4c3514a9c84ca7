"""The one seam between the probe and the outside: real, recorded, or replayed.

Every outside fact is one question, `(op, *args)`, with an answer that goes to JSON, or an error
that keeps its type. A tape is a list of such pairs, so a bug report becomes a test by saving one
file, and a test can invent a machine by writing one.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

# no file that the probe reads is larger; some files under /sys never end
READ_LIMIT_BYTES = 4 << 20


class HostError(Exception):
    """An outside question that could not be answered; `kind` survives a trip through a tape.

    kind: "absent" (no such file, library or package), "denied" (no permission), "timeout",
    "crashed", "garbled" (an answer that makes no sense), "failed" (anything else), or
    "unrecorded" (a replayed tape does not hold this question).
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Host(Protocol):
    """Answers outside questions. Every method raises HostError and nothing else."""

    def ask(self, op: str, *args: Any) -> Any: ...


def read(host: Host, path: str) -> str:
    """The text of a file, at most READ_LIMIT_BYTES, undecodable bytes replaced."""
    return str(host.ask("read", path))


def names_in(host: Host, path: str) -> tuple[str, ...]:
    """The sorted names in a folder."""
    return tuple(host.ask("list", path))


def link_target(host: Host, path: str) -> str:
    """Where a symbolic link points, as written."""
    return str(host.ask("link", path))


def access(host: Host, path: str) -> str:
    """What this process may do with a path: "rw", "r", "w" or ""; HostError absent if not there."""
    return str(host.ask("access", path))


def env(host: Host, name: str) -> str | None:
    """A variable of the environment, None where unset."""
    value = host.ask("env", name)
    return None if value is None else str(value)


def child(host: Host, library: str, *args: Any) -> Any:
    """What a vendor library says, asked in a guarded child that is ended after a time limit.

    library: the name of a module in attnctl.probe.children.
    """
    return host.ask("child", library, *args)


class RealHost:
    """Asks this machine."""

    def ask(self, op: str, *args: Any) -> Any:
        handler = getattr(self, f"_{op}", None)
        if handler is None:
            raise HostError("failed", f"no such question: {op}")
        try:
            return handler(*args)
        except HostError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise HostError("absent", error.strerror or str(error)) from error
        except PermissionError as error:
            raise HostError("denied", error.strerror or str(error)) from error
        except OSError as error:
            raise HostError("failed", error.strerror or str(error)) from error

    def _read(self, path: str) -> str:
        # non-blocking, so that a pipe in the place of a file cannot hang the probe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(READ_LIMIT_BYTES).decode("utf-8", "replace")

    def _list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208  (pathlib costs start-up here)

    def _link(self, path: str) -> str:
        return os.readlink(path)  # noqa: PTH115

    def _access(self, path: str) -> str:
        os.stat(path)  # noqa: PTH116
        return ("r" if os.access(path, os.R_OK) else "") + ("w" if os.access(path, os.W_OK) else "")

    def _env(self, name: str) -> str | None:
        return os.environ.get(name)

    def _child(self, library: str, *args: Any) -> Any:
        from attnctl.probe.children import ask_child

        return ask_child(library, args)
