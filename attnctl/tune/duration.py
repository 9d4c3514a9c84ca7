"""A time as people write it: 90s, 10m, 1.5h. No torch."""

from __future__ import annotations

import re

from attnctl.exits import InputError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_S = 30 * 86_400.0

_TEXT = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*$")


def seconds(text: str, option: str) -> float:
    """InputError: it is no time, or none that a run can last."""
    found = _TEXT.match(text)
    if found is None:
        raise InputError(f"{option} {text}: not a time; write it as 90s, 10m or 1.5h")
    value = float(found[1]) * UNITS[found[2]]
    if not 0 < value <= LONGEST_S:
        raise InputError(f"{option} {text}: must be more than 0 and at most 30 days")
    return value
