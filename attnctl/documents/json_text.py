"""JSON that others wrote: in which encoding it is, and whether an object names a key twice.

A parser keeps the last value of a key that is given twice and says nothing: what somebody edited
further up is lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.exits import InputError

# what msgspec.json.decode raises for bytes that are not what was asked for
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

MARK = b"\xef\xbb\xbf"
# marks, and what a document begins with where it has none; the longer ones first
WIDE = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    **dict.fromkeys((b"{\0\0\0", b"[\0\0\0", b"\0\0\0{", b"\0\0\0["), "UTF-32"),
    **dict.fromkeys((b"{\0", b"[\0", b"\0{", b"\0["), "UTF-16"),
}


def unmarked(data: bytes, where: str) -> bytes:
    """The bytes without UTF-8's byte-order mark; InputError where they are UTF-16 or UTF-32."""
    if data.startswith(MARK):
        return data[len(MARK) :]
    for start, name in WIDE.items():
        if data.startswith(start):
            raise InputError(f"{where}: this is {name} text, and JSON is UTF-8: save it as UTF-8")
    return data


def refuse_repeated(data: bytes, where: str) -> None:
    """InputError where an object of this JSON names a key twice: its path and both places."""
    for text in repeated(data):
        raise InputError(f"{where}: {text}: keep one of them")


def repeated(data: bytes) -> tuple[str, ...]:
    """For each key that an object of this JSON names twice, its path and both places."""
    if plain(data) is not None:
        return ()
    from attnctl.documents.json_keys import repeated_keys

    return tuple(map(str, repeated_keys(data)))


def plain(data: bytes) -> Any:
    """The value of JSON in which no object names a key twice; None where one may, or it is no JSON.

    Each member of an object has a colon of its own, and the other colons stand in texts. Parsed and
    written again a text has the colons that it had, if none was written as an escape, and a member
    that a later one replaced has taken its own away: the counts differ if and only if one did.
    """
    if b"\\u003a" in data or b"\\u003A" in data:
        return None
    try:
        value = msgspec.json.decode(data)
        again = msgspec.json.encode(value)
    except (*UNREADABLE, UnicodeEncodeError):  # also JSON that other parsers take, with NaN in it
        return None
    return value if again.count(b":") == data.count(b":") else None
