"""Vendor libraries are asked in children: one process per library, with an end.

A child module `attnctl.probe.children.ask_NAME` has one function, `answer(*args)`, that returns
something JSON-able. It may raise HostError to choose the kind of failure; ImportError and
FileNotFoundError become "absent", PermissionError "denied", anything else "failed" with the type
and text of the exception. Its standard streams lead nowhere, so a library may print; it may crash
or hang; it may change os.environ. It must not import heavy packages: its time limit includes the
start of Python. This file is the parent's side and imports nothing until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnctl.probe.host import HostError

if TYPE_CHECKING:
    import subprocess

ANSWER_LIMIT_BYTES = 1 << 20
TIMEOUT_S = 2.0
# how long a killed child may take to go; one that sits in a hung driver call never does
REAP_S = 0.2

# runs before anything but sys is imported, so no file of the current folder can get in the way
_START = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from attnctl.probe.children.serve import serve; serve(sys.argv[1], sys.argv[2])"
)


def ask_child(
    library: str,
    args: tuple[Any, ...] = (),
    timeout_s: float = TIMEOUT_S,
    package: str = "attnctl.probe.children",
) -> Any:
    """What `package.library.answer(*args)` returned in a child process; HostError otherwise.

    Kinds: "absent" (no such module, or the library is not there), "timeout", "crashed" (the signal
    is named), "garbled" (not JSON, or over 1 MiB), "denied", "failed".
    """
    import time

    deadline = time.monotonic() + timeout_s
    process = _start(f"{package}.{library}", args)
    try:
        data = _collect(process, deadline)
        if data is None:
            raise HostError("timeout", f"{library}: no answer within {timeout_s:g} s")
        if not data.endswith(b"\n") and len(data) <= ANSWER_LIMIT_BYTES:
            raise _cause(library, data, process.pid, deadline)
        return _decode(library, data)
    finally:
        _end(process)


def _start(module: str, args: tuple[Any, ...]) -> subprocess.Popen[bytes]:
    import subprocess
    import sys

    import msgspec

    if not sys.executable:
        raise HostError("failed", "this Python does not know its own interpreter")
    path = [entry for entry in sys.path if entry]
    root = __file__.rsplit("/", 4)[0]
    if root not in path:
        path.insert(0, root)
    # -I -S: no user site, no .pth hooks; the parent's own path is passed on instead
    command = [sys.executable, "-I", "-S", "-c", _START, module]
    command += [msgspec.json.encode(args).decode(), *path]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )


def _collect(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """All that the child wrote, cut past the limit; None if it was still open at the deadline."""
    import os
    import select
    import time

    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    data = bytearray()
    while len(data) <= ANSWER_LIMIT_BYTES:
        left_ms = (deadline - time.monotonic()) * 1000
        if left_ms <= 0 or not poll.poll(left_ms):
            return None
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            break
        data += piece
    return bytes(data)


def _cause(library: str, data: bytes, pid: int, deadline: float) -> HostError:
    """Why a child closed its side without a whole answer."""
    import os
    import signal
    import time

    # WNOWAIT leaves it unreaped, so that its process group can still be ended by its number
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while (end := os.waitid(os.P_PID, pid, how)) is None:
        if time.monotonic() > deadline:
            return HostError("timeout", f"{library}: closed its answer and did not end")
        time.sleep(0.002)
    if end.si_code != os.CLD_EXITED:
        names = {number.value: number.name for number in signal.Signals}
        name = names.get(end.si_status, f"signal {end.si_status}")
        return HostError("crashed", f"{library}: ended by {name}")
    if data:
        return HostError("garbled", f"{library}: half an answer of {len(data)} bytes")
    return HostError("crashed", f"{library}: ended with status {end.si_status}, without an answer")


def _decode(library: str, data: bytes) -> Any:
    import msgspec

    if len(data) > ANSWER_LIMIT_BYTES:
        raise HostError("garbled", f"{library}: an answer of over {ANSWER_LIMIT_BYTES} bytes")
    try:
        answer = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HostError("garbled", f"{library}: {error}") from error
    match answer:
        case {"ok": value}:
            return value
        case {"error": [str(kind), str(detail)]}:
            raise HostError(kind, detail)
    raise HostError("garbled", f"{library}: an answer that is neither good nor an error")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the child and everything that it started."""
    import contextlib
    import os
    import signal
    import subprocess

    if process.stdout is not None:
        process.stdout.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(REAP_S)
