"""The parent of one child that lists and compiles: asks, ends what hangs, restarts what died."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from attnctl.child import Worker
from attnctl.compiling.knob_lines import Answer, Ask, Failed, Group, Made, MakeAsk
from attnctl.compiling.todo import Todo
from attnctl.run import start
from attnctl.trials import Ready

MODULE = "attnctl.compiling.knob_worker"


def answered(
    todo: Todo,
    timeout_s: float,
    ready: Callable[[Ready], None],
    make: Callable[[], Worker] = lambda: Worker(module=MODULE),
) -> Iterator[tuple[Ask, Answer]]:
    """Each thing that one child took to do, with its answer, until there is nothing left to do.

    timeout_s: of one answer. ready: told what each child says of itself.
    """
    worker: Worker | None = None
    refused, group = "", Group("", "")
    try:
        while (ask := todo.next(group)) is not None:
            group = ask.group
            if worker is None and not refused:
                worker, said = start(make)
                refused = said.detail if worker is None else ""
                ready(said)
            if worker is None:
                yield ask, _answer(ask, "error", refused)
                continue
            answer, alive = _asked(worker, ask, timeout_s)
            if not alive:
                worker.end()
                worker = None
            yield ask, answer
    finally:
        if worker is not None:
            worker.end()


def _asked(worker: Worker, ask: Ask, timeout_s: float) -> tuple[Answer, bool]:
    """The answer, and whether the worker is still good for another."""
    worker.send(msgspec.json.encode(ask).decode())
    try:
        line = worker.line(timeout_s)
    except EOFError:
        return _answer(ask, "crashed", worker.death()), False
    if line is None:
        return _answer(ask, "timeout", f"no answer after {timeout_s:g} s"), False
    try:
        return msgspec.json.decode(line, type=Answer), True
    except msgspec.MsgspecError as error:
        return _answer(ask, "error", f"garbled answer: {error}"), False


def _answer(ask: Ask, status: str, detail: str) -> Answer:
    if isinstance(ask, MakeAsk):
        return Made(ask.key, status, detail=detail)  # type: ignore[arg-type]
    return Failed(detail, status)  # type: ignore[arg-type]
