"""What the codes of findings mean: the table behind `attnctl explain CODE`."""

from __future__ import annotations

import msgspec

from attnctl.codes.probing import PROBING
from attnctl.codes.selection import SELECTION
from attnctl.codes.vendors import VENDORS

TABLE = {**SELECTION, **VENDORS, **PROBING}
"""Code -> (title, what the rule is about, what to do). "*" in a code stands for any word."""


class Meaning(msgspec.Struct, frozen=True):
    """One code: a title, what the rule is about, and what a user can do."""

    code: str
    title: str
    about: str
    advice: str


def meaning(code: str) -> Meaning | None:
    """Return what a code means; None for one that nobody here has heard of."""
    key = code if code in TABLE else next((k for k in TABLE if _fits(code, k)), None)
    return None if key is None else Meaning(code, *TABLE[key])


def near(code: str) -> tuple[str, ...]:
    """Return known codes that are spelt nearly like this one."""
    # costs a few milliseconds, and only a misspelling needs it
    from difflib import get_close_matches

    return tuple(get_close_matches(code, TABLE, n=3))


def _fits(code: str, pattern: str) -> bool:
    head, star, tail = pattern.partition("*")
    if not star or len(code) <= len(head) + len(tail):
        return False
    return code.startswith(head) and code.endswith(tail)
