"""The parent of one child that lists and compiles: asks, ends what hangs, restarts what died."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from attnctl.compiling.knob_lines import Answer, Ask, Failed, Group, Lists, Made, MakeAsk
from attnctl.compiling.todo import Todo
from attnctl.processes.child import Worker
from attnctl.smoke.trials import Ready
from attnctl.smoke.workers import start

MODULE = "attnctl.compiling.knob_worker"


def answered(
    todo: Todo, timeout_s: float, ready: Callable[[Ready], None]
) -> Iterator[tuple[Ask, Answer]]:
    """Each thing that one child took to do, with its answer, until there is nothing left to do.

    timeout_s: of one answer. ready: told what each child says of itself.
    """
    child, group = _Child(timeout_s, ready), Group("", "")
    try:
        while (ask := todo.next(group)) is not None:
            group = ask.group
            yield ask, child.answer(ask)
    finally:
        child.end()


class _Child:
    """Started when it is first asked, and again after it died."""

    def __init__(self, timeout_s: float, ready: Callable[[Ready], None]) -> None:
        self._timeout_s = timeout_s
        self._ready = ready
        self._worker: Worker | None = None
        self._refused = ""

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def answer(self, ask: Ask) -> Answer:
        """What a crash in a used child was asked is asked again in a new one.

        Compilers that failed once are seen to abort at a later launch, which is sound.
        """
        used = self._worker is not None
        answer = self._once(ask)
        if used and not isinstance(answer, Lists) and answer.status == "crashed":
            answer = self._once(ask)
        return answer

    def _once(self, ask: Ask) -> Answer:
        if self._worker is None and not self._refused:
            self._worker, said = start(lambda: Worker(module=MODULE))
            self._refused = said.detail if self._worker is None else ""
            self._ready(said)
        if self._worker is None:
            return _answer(ask, "error", self._refused)
        answer = _asked(self._worker, ask, self._timeout_s)
        if answer is None:
            return _answer(ask, "timeout", self._ended(f"no answer after {self._timeout_s:g} s"))
        if isinstance(answer, str):
            return _answer(ask, "crashed", self._ended(answer))
        return answer

    def _ended(self, detail: str) -> str:
        self.end()
        return detail


def _asked(worker: Worker, ask: Ask, timeout_s: float) -> Answer | str | None:
    """The answer; how the worker died; None where the time is over."""
    worker.send(msgspec.json.encode(ask).decode())
    try:
        line = worker.line(timeout_s)
    except EOFError:
        return worker.death()
    try:
        return None if line is None else msgspec.json.decode(line, type=Answer)
    except msgspec.MsgspecError as error:
        return _answer(ask, "error", f"garbled answer: {error}")


def _answer(ask: Ask, status: str, detail: str) -> Answer:
    if isinstance(ask, MakeAsk):
        return Made(ask.key, status, detail=detail)  # type: ignore[arg-type]
    return Failed(detail, status)  # type: ignore[arg-type]
