"""What --sweep asks: one axis from low to high, and the rest of the workload beside it."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.exits import InputError
from attnctl.nearest import did_you_mean
from attnctl.profile.pick import DECODE_TOKENS

LENGTHS = ("batch", "context", "query")
HEAD_SIZE = "head_size"
LIMIT = 1 << 24
CONTEXT = 4096
"""Tokens of context where nobody says how many."""
DIGITS = 8
WIDEST = 4096
"""The largest head size that is tried: each one is a selection of its own."""
EXAMPLE = "as in --sweep context=1..131072,batch=8,phase=decode"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One axis from low to high, and the workload beside it.

    phase: "" for what so many new tokens are in the library.
    """

    axis: str
    low: int
    high: int
    phase: str = ""
    batch: int = 1
    context: int = CONTEXT
    query: int = 1

    @property
    def most_new(self) -> int:
        """The most new tokens of a sequence that are asked about."""
        return self.high if self.axis == "query" else self.query


def read_ask(text: str) -> Ask:
    """The value of --sweep: AXIS=LOW..HIGH[,NAME=VALUE...]. InputError says what is wrong in it."""
    fields: dict[str, Any] = {}
    given: set[str] = set()
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in given:
            raise InputError(f"--sweep {text}: {name} is given twice; give it once, {EXAMPLE}")
        given.add(name)
        if ".." in value:
            if "axis" in fields:
                raise InputError(f"--sweep {text}: two ranges; give one, {EXAMPLE}")
            fields.update(axis=_axis(name), **_bounds(text, value))
        elif name == "phase" and value in ("decode", "prefill"):
            fields["phase"] = value
        elif name in LENGTHS:
            fields[name] = _count(text, value)
        else:
            raise InputError(f"--sweep {text}: {part!r} is no range and no setting: {EXAMPLE}")
    if "axis" not in fields:
        raise InputError(f"--sweep {text}: no range; {EXAMPLE}")
    if fields["axis"] == HEAD_SIZE:
        _check_head_sizes(text, fields)
    ask = msgspec.convert({**_defaults(fields), **fields}, Ask)
    _check_lengths(text, ask)
    return ask


def _check_head_sizes(text: str, fields: dict[str, Any]) -> None:
    if fields["high"] > WIDEST:
        raise InputError(f"--sweep {text}: head sizes go up to {WIDEST}; {EXAMPLE}")
    for name in ("phase", *LENGTHS):
        if name in fields:
            raise InputError(
                f"--sweep {text}: {name} has no say along head_size, where the rules alone decide: "
                "leave it out"
            )


def _defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """A context that holds the new tokens, and a prefill of the whole of it."""
    new = fields["high"] if fields["axis"] == "query" else fields.get("query", 1)
    found = {"context": max(CONTEXT, new)}
    if fields.get("phase") == "prefill" and fields["axis"] != "query":
        context = fields.get("context", found["context"])
        found["query"] = min(fields["high"], context) if fields["axis"] == "context" else context
    return found


def _check_lengths(text: str, ask: Ask) -> None:
    new, most = ask.most_new, ask.high if ask.axis == "context" else ask.context
    if new > most:
        raise InputError(
            f"--sweep {text}: {new} new tokens are more than the context of {most}, which counts "
            "them: give a longer context"
        )
    if ask.phase == "decode" and new > DECODE_TOKENS:
        raise InputError(
            f"--sweep {text}: a decoding step has at most {DECODE_TOKENS} new tokens, found {new}: "
            "say phase=prefill, or leave it out"
        )


def _axis(name: str) -> str:
    known = (*LENGTHS, HEAD_SIZE)
    if name not in known:
        hint = did_you_mean(name, known) or f" Known are {', '.join(known)}."
        raise InputError(f"--sweep: no axis {name!r}.{hint}")
    return name


def _bounds(text: str, value: str) -> dict[str, int]:
    low, _, high = value.partition("..")
    bounds = {"low": _count(text, low), "high": _count(text, high)}
    if bounds["low"] > bounds["high"]:
        raise InputError(f"--sweep {text}: it ends before it starts; {EXAMPLE}")
    return bounds


def _count(text: str, word: str) -> int:
    """A number of 1 or more, or one in k (1024)."""
    number, kilo = (word[:-1], 1024) if word[-1:] in ("k", "K") else (word, 1)
    digits = number.isascii() and number.isdigit() and len(number) <= DIGITS
    if not digits or not 0 < int(number) * kilo <= LIMIT:
        raise InputError(f"--sweep {text}: {word!r} is no count from 1 to {LIMIT}; {EXAMPLE}")
    return int(number) * kilo
