"""Where the objects of a JSON text name a key twice: its path, and both places."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

# a text, or a mark of the structure; numbers and names lie between them
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
LONGEST = 80
"""Characters of a key that are shown."""
MOST = 20
"""How many keys are told of: whoever repeats more has a file that was put together by a fault."""


class Repeated(NamedTuple):
    """One key that is there again. first, again: (line, column), from 1."""

    path: str
    first: tuple[int, int]
    again: tuple[int, int]

    def __str__(self) -> str:
        (line, column), (other, later) = self.first, self.again
        if line == other:
            return f"{self.path} is given twice in line {line}, at columns {column} and {later}"
        return f"{self.path} is given twice, in line {line} and in line {other}"


class _Open:
    """An object or a list whose end has not come; place: the key or the index that is being read.

    seen: key -> where it stood first.
    """

    def __init__(self, is_list: bool) -> None:
        self.is_list = is_list
        self.place: str | int = 0
        self.seen: dict[str, int] = {}


def repeated_keys(data: bytes) -> Iterator[Repeated]:
    """The keys of well-formed JSON that some object names more than once, MOST of them at most."""
    found = 0
    opened: list[_Open] = []
    text = None
    for token in TOKEN.finditer(data):
        mark = token[0][:1]
        if mark == b'"':
            text = token
        elif mark in b"{[":
            opened.append(_Open(mark == b"["))
        elif not opened:
            return
        elif mark in b"}]":
            opened.pop()
        elif mark == b"," and opened[-1].is_list:
            opened[-1].place = int(opened[-1].place) + 1
        elif mark == b":" and text is not None:
            key = _decoded(text[0])
            opened[-1].place = key
            first = opened[-1].seen.setdefault(key, text.start())
            if first != text.start():
                yield Repeated(_path(opened), _at(data, first), _at(data, text.start()))
                found += 1
                if found == MOST:
                    return


def _decoded(text: bytes) -> str:
    """The key that is meant; a parser that passes over a member does not look whether it reads."""
    whole = text.decode("utf-8", "surrogateescape")
    try:
        return str(json.loads(whole, strict=False))
    except ValueError:
        return whole


def _path(opened: list[_Open]) -> str:
    """As in "groups[3].layers"; in quotes what would not read as a name, and cut what is long."""
    parts = (f"[{one.place}]" if one.is_list else f".{_name(str(one.place))}" for one in opened)
    return "".join(parts).removeprefix(".")


def _name(key: str) -> str:
    short = key if len(key) <= LONGEST else f"{key[:LONGEST]}..."
    return short if short.isprintable() and short and " " not in short else json.dumps(short)


def _at(data: bytes, offset: int) -> tuple[int, int]:
    return data.count(b"\n", 0, offset) + 1, offset - data.rfind(b"\n", 0, offset)
