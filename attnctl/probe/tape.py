"""Tapes: what a host was asked and what it said, kept in a file and played back.

A tape file is JSON: {"schema": "attnctl.tape/1", "entries": [...]}, each entry one of
{"ask": [op, ...], "ok": answer}, {"ask": [op, ...], "lines": [...]} (a text, line by line, so
that a person can read and write it) and {"ask": [op, ...], "error": [kind, detail]}. An optional
"default": [kind, detail] answers every question without an entry; else those are "unrecorded".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attnctl.documents.json_text import UNREADABLE, refuse_repeated, unmarked
from attnctl.exits import InputError
from attnctl.probe.host import Host, HostError

SCHEMA = "attnctl.tape/1"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question and its answer: `error`, or `lines`, or else `ok` (which may be null)."""

    ask: list[Any]
    ok: Any = msgspec.UNSET
    lines: list[str] | None = None
    error: tuple[str, str] | None = None

    def answer(self) -> Any:
        """The answer; HostError where the question had none."""
        if self.error is not None:
            raise HostError(*self.error)
        if self.lines is not None:
            return "\n".join(self.lines)
        return None if self.ok is msgspec.UNSET else self.ok


class Tape(msgspec.Struct, frozen=True, omit_defaults=True):
    schema: str
    entries: list[Entry]
    default: tuple[str, str] | None = None


class Recorder:
    """A host that asks another one, once per question, and remembers.

    A question that was asked before is answered from memory, so that what was seen is what is
    saved, and a second probe through the same recorder costs nothing outside.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._entries: dict[bytes, Entry] = {}

    def ask(self, op: str, *args: Any) -> Any:
        key = _key((op, *args))
        if key not in self._entries:
            self._entries[key] = self._record((op, *args))
        return self._entries[key].answer()

    def tape(self) -> Tape:
        """Everything so far, in the order in which it was first asked."""
        return Tape(SCHEMA, list(self._entries.values()))

    def _record(self, question: tuple[Any, ...]) -> Entry:
        try:
            return _entry(question, self.host.ask(*question))
        except HostError as error:
            return Entry(list(question), error=(error.kind, error.detail))


class Replay:
    """A host that answers from a tape and asks nothing of the machine that it runs on."""

    def __init__(self, tape: Tape) -> None:
        self._entries = {_key(entry.ask): entry for entry in tape.entries}
        self._default = tape.default

    @classmethod
    def of(
        cls,
        answers: Mapping[tuple[Any, ...], Any],
        default: tuple[str, str] | None = ("absent", "not on this machine"),
    ) -> Replay:
        """A replay of answers given by hand; a HostError as an answer is raised.

        default: the error of every question that is not listed; None makes them "unrecorded".
        """
        return cls(tape_of(answers, default))

    def ask(self, op: str, *args: Any) -> Any:
        entry = self._entries.get(_key((op, *args)))
        if entry is not None:
            return entry.answer()
        if self._default is not None:
            raise HostError(*self._default)
        raise HostError("unrecorded", f"the tape does not hold {' '.join(map(str, (op, *args)))}")


def tape_of(answers: Mapping[tuple[Any, ...], Any], default: tuple[str, str] | None = None) -> Tape:
    """A tape of answers given by hand; a HostError as an answer becomes an error entry."""
    entries = [
        Entry(list(question), error=(answer.kind, answer.detail))
        if isinstance(answer, HostError)
        else _entry(question, answer)
        for question, answer in answers.items()
    ]
    return Tape(SCHEMA, entries, default)


def write_tape(tape: Tape) -> bytes:
    """The tape as JSON for people: one entry a line, and each line of a text on its own."""
    encode = msgspec.json.encode
    head = f'{{"schema": {encode(tape.schema).decode()}, "entries": ['
    entries = ",\n".join(map(_written, tape.entries))
    default = "" if tape.default is None else f', "default": {encode(tape.default).decode()}'
    return f"{head}\n{entries}\n]{default}}}\n".encode()


def read_tape(data: bytes, name: str = "tape") -> Tape:
    """The tape in a file's bytes; InputError, naming the file, where it is damaged."""
    data = unmarked(data, name)
    try:
        tape = msgspec.json.decode(data, type=Tape)
    except UNREADABLE as error:
        raise InputError(
            f"{name}: not a tape: {error}. Record it again with: attnctl probe --record FILE"
        ) from error
    if tape.schema != SCHEMA:
        raise InputError(
            f"{name}: schema is {tape.schema!r} and this attnctl reads {SCHEMA!r}. "
            "Record it again with: attnctl probe --record FILE"
        )
    refuse_repeated(data, name)
    return tape


def _entry(question: tuple[Any, ...], answer: Any) -> Entry:
    if isinstance(answer, str) and "\n" in answer:
        return Entry(list(question), lines=answer.split("\n"))
    return Entry(list(question), ok=answer)


def _written(entry: Entry) -> str:
    if not entry.lines:
        return msgspec.json.encode(entry).decode()
    ask = msgspec.json.encode(entry.ask).decode()
    lines = ",\n ".join(msgspec.json.encode(line).decode() for line in entry.lines)
    return f'{{"ask":{ask},"lines":[\n {lines}]}}'


def _key(question: Any) -> bytes:
    try:
        return msgspec.json.encode(list(question))
    except UnicodeEncodeError:  # lone surrogates, from a damaged tape
        return repr(question).encode("utf-8", "replace")
