"""The one seam between the probe and the outside: real, recorded, or replayed.

Every outside fact is one question, `(op, *args)`, with an answer that goes to JSON, or an error
that keeps its type. A tape is a list of such pairs, so a bug report becomes a test by saving one
file, and a test can invent a machine by writing one. The functions here ask and check the shape of
the answer, so that a damaged tape is a HostError and not a TypeError further on.
"""

from __future__ import annotations

from typing import Any, Protocol


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
    """The text of a file, at most 4 MiB of it, undecodable bytes replaced."""
    return _text(host.ask("read", path), path)


def names_in(host: Host, path: str) -> tuple[str, ...]:
    """The sorted names in a folder."""
    answer = host.ask("list", path)
    if not isinstance(answer, (list, tuple)) or not all(isinstance(name, str) for name in answer):
        raise HostError("garbled", f"{path}: not a list of names")
    return tuple(answer)


def link_target(host: Host, path: str) -> str:
    """Where a symbolic link points, as written."""
    return _text(host.ask("link", path), path)


def access(host: Host, path: str) -> str:
    """What this process may do with a path: "rw", "r", "w" or ""; HostError absent if not there."""
    return _text(host.ask("access", path), path)


def exists(host: Host, path: str) -> bool:
    """Whether a path is there. A path that may not be asked about counts as not there."""
    try:
        access(host, path)
    except HostError:
        return False
    return True


def env(host: Host, name: str) -> str | None:
    """A variable of the environment, None where unset. Ask only for names that are needed."""
    try:
        value = host.ask("env", name)
    except HostError as error:
        if error.kind == "absent":  # a machine written by hand need not list what is unset
            return None
        raise
    return None if value is None else _text(value, name)


def child(host: Host, library: str, *args: Any) -> Any:
    """What a vendor library says, asked in a guarded child that is ended after a time limit.

    library: the name of a module in attnctl.probe.children, such as "ask_amx".
    """
    return host.ask("child", library, *args)


def table(host: Host, op: str, *args: Any) -> dict[str, Any]:
    """The answer of a question whose answer is a JSON object.

    "uname": {"system", "release", "version", "machine"}; the node name is never asked.
    "python": {"version", "implementation", "executable", "include"}.
    "ids": {"uid", "gid", "groups": [gid, ...]} of this process.
    "stat", path: {"mode", "uid", "gid"} of a file or device node.
    "auxv": {"hwcap", "hwcap2"}, the words that the kernel gives a process about its CPU.
    """
    answer = host.ask(op, *args)
    if not isinstance(answer, dict):
        raise HostError("garbled", f"{op}: not an object")
    return answer


def affinity(host: Host) -> tuple[int, ...]:
    """The numbers of the processors that this process may run on."""
    answer = host.ask("affinity")
    if not isinstance(answer, (list, tuple)) or not all(type(cpu) is int for cpu in answer):
        raise HostError("garbled", "affinity: not a list of numbers")
    return tuple(answer)


def site_dirs(host: Host) -> tuple[str, ...]:
    """The folders that Python imports from, in order."""
    answer = host.ask("site_dirs")
    if not isinstance(answer, (list, tuple)) or not all(isinstance(path, str) for path in answer):
        raise HostError("garbled", "site_dirs: not a list of folders")
    return tuple(answer)


def _text(answer: Any, about: str) -> str:
    if not isinstance(answer, str):
        raise HostError("garbled", f"{about}: not a text")
    return answer
