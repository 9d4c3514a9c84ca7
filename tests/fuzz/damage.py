"""Damage to a document by a seeded random: to its values first, then to its text."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

WORDS = (
    *("", " ", "0", "-1", "8", "auto", "none", "null", "float16", "bfloat16", "float8_e4m3fn"),
    *("full_attention", "sliding_attention", "M*-EM", "mamba", "sm_90", "gfx942", "é\0\x1b[31m"),
    *("a" * 300, "../../etc/passwd", "10de:2335", "2.11.0+cu130", "unknown", "*", "%s%n", "\u202e"),
    *("9" * 400, "\ud800", "{}", "[bold]x[/bold]", "[/]", "\r\nx", "1e400", "NaN"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 8, 16, 48, 63, 64, 65, 128, 255, 1024, 4096, 32768, 10_000, 100_000),
    *(2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 8.0, 1.0000001),
)
LARGEST_BYTES = 2**22
"""Of the text of a value that is repeated."""

Place = tuple[Any, Any]  # a container and a key or index in it


def damaged(chance: random.Random, documents: Sequence[Any], names: Sequence[str]) -> bytes:
    """One of the documents with one to six changes of its values, and now and then of its text."""
    document = copy.deepcopy(chance.choice(documents))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        places = places_in(document)
        if not places:
            break
        with suppress(RecursionError):  # what is nested too deep to be copied stays as it is
            chance.choice(CHANGES)(chance, places, documents, names)
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5)
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        data = chance.choice(TEXT_CHANGES)(chance, data)
    return data


def places_in(document: Any) -> list[Place]:
    """Every value inside a document, as a container and its key there."""
    found: list[Place] = []
    left = [document]
    while left:
        value = left.pop()
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in inner:
            found.append((value, key))
            if isinstance(one, dict | list) and one:
                left.append(one)
    return found


def junk(chance: random.Random, depth: int = 2) -> Any:
    kind = chance.randrange(8 if depth else 5)
    if kind < 2:
        return chance.choice(NUMBERS)
    if kind < 4:
        return chance.choice(WORDS)
    if kind == 4:
        return chance.choice((None, True, False))
    if kind == 5:
        return {chance.choice(WORDS): junk(chance, depth - 1) for _ in range(chance.randrange(3))}
    return [junk(chance, depth - 1) for _ in range(chance.randrange(4))]


Change = Callable[[random.Random, list[Place], Sequence[Any], Sequence[str]], None]


def _replace(chance: random.Random, places: list[Place], *_: Any) -> None:
    where, key = chance.choice(places)
    where[key] = junk(chance)


def _alike(chance: random.Random, places: list[Place], documents: Sequence[Any], _: Any) -> None:
    """A value becomes another one of its type, of this kind of document or a strange one."""
    where, key = chance.choice(places)
    value = where[key]
    if type(value) in (int, float):
        where[key] = chance.choice(NUMBERS)
    elif isinstance(value, bool):
        where[key] = not value
    elif isinstance(value, str):
        there = [one[name] for one, name in places_in(chance.choice(documents))]
        where[key] = chance.choice([one for one in there if isinstance(one, str)] or WORDS)
    elif isinstance(value, list):
        chance.shuffle(value)
        del value[chance.randrange(len(value) + 1) :]


def _nudge(chance: random.Random, places: list[Place], *_: Any) -> None:
    """A number becomes one near it, or a value one of another type."""
    numbers = [place for place in places if type(place[0][place[1]]) in (int, float)]
    where, key = chance.choice(numbers or places)
    value = where[key]
    if type(value) in (int, float):
        where[key] = chance.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, value * 997)
        )
    else:
        where[key] = chance.choice((str(value), [value], {"x": value}, None, 1))


def _remove(chance: random.Random, places: list[Place], *_: Any) -> None:
    where, key = chance.choice(places)
    del where[key]


def _add(chance: random.Random, places: list[Place], _: Any, names: Sequence[str]) -> None:
    where, key = chance.choice(places)
    if isinstance(where, dict):
        name = chance.choice(names) if chance.random() < 0.8 else chance.choice(WORDS)
        where[name] = junk(chance)
    else:
        where.insert(key, junk(chance))


def _borrow(chance: random.Random, places: list[Place], documents: Sequence[Any], _: Any) -> None:
    """A value of another document under its own name, or in the place of this one."""
    others = places_in(chance.choice(documents))
    where, key = chance.choice(places)
    if others:
        source, name = chance.choice(others)
        if isinstance(where, dict) and isinstance(name, str) and chance.random() < 0.7:
            key = name
        where[key] = copy.deepcopy(source[name])


def _swap(chance: random.Random, places: list[Place], *_: Any) -> None:
    (one, key), (other, name) = chance.choice(places), chance.choice(places)
    first, second = copy.deepcopy(one[key]), copy.deepcopy(other[name])
    one[key], other[name] = second, first


def _lengthen(chance: random.Random, places: list[Place], *_: Any) -> None:
    """A list, or a text, many times over; a value inside many lists."""
    where, key = chance.choice(places)
    value = where[key]
    if isinstance(value, list | str) and value:
        times = chance.choice((2, 50, 20_000)) // len(value) + 1
        # lists of lists would grow by every change, and through what they share in many places
        longer = value * max(1, min(times, LARGEST_BYTES // len(json.dumps(value))))
        where[key] = longer if isinstance(value, str) else [copy.deepcopy(one) for one in longer]
    else:
        for _ in range(chance.choice((3, 60, 400))):
            value = [value] if chance.random() < 0.5 else {"text_config": value}
        where[key] = value


CHANGES: tuple[Change, ...] = (
    *(_replace, _replace, _nudge, _nudge, _nudge, _alike, _alike, _alike, _remove, _remove),
    *(_add, _add, _borrow, _borrow, _swap, _lengthen),
)


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _flip(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if found:
            found[chance.randrange(len(found))] = chance.randrange(256)
    return bytes(found)


def _insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(TOKENS) + data[at:]


def _twice(chance: random.Random, data: bytes) -> bytes:
    """A part of the text is there again, as after a merge that went wrong."""
    start = chance.randrange(len(data) + 1)
    end = min(len(data), start + chance.choice((1, 20, 300)))
    return data[:end] + data[start:]


def _encode(chance: random.Random, data: bytes) -> bytes:
    mark = chance.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b""))
    encoding = chance.choice(("utf-8", "utf-16", "utf-16-be", "utf-32", "latin-1", "utf-7"))
    return mark + data.decode("utf-8", "replace").encode(encoding, "replace")


TOKENS = (
    *(b"NaN", b"1e999", b"-", b"9" * 5000, b"\0", b'"', b"\\", b"\\u003a", b"\\ud800", b"\xff"),
    *(b"[" * 2000, b'{"a":' * 2000, b"]" * 10, b"}", b",", b":", b"//x\n", b"null", b'"x":1,'),
)
TEXT_CHANGES = (_cut, _cut, _flip, _flip, _insert, _insert, _twice, _encode)
