"""Numbers as people of the field write them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def bytes_text(count: int | None) -> str:
    """ "139.8 GiB", "32 KiB", "512 bytes"; "?" where the number is not known."""
    if count is None:
        return "?"
    if count.bit_length() > 80:
        return "more than 1024 ZiB"  # a broken driver's, or a damaged file's
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{_short(amount)} {_UNITS[unit]}"


def _short(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")


def ranges(numbers: Iterable[int]) -> str:
    """As short as it can be said: "0-4, 6", "0-60 step 2", "0-61 without 5-59 step 6"."""
    ordered = sorted(set(numbers))
    plain = _steps(ordered) or _runs(ordered)
    if not ordered or plain.count(",") < 3:
        return plain
    rest = sorted(set(range(ordered[0], ordered[-1])) - set(ordered))
    without = f"{ordered[0]}-{ordered[-1]} without {_steps(rest) or _runs(rest)}"
    return min(plain, without, key=len)


def _steps(ordered: list[int]) -> str:
    """ "0-60 step 2", or "" where the numbers keep no even distance above 1."""
    steps = {after - before for before, after in pairwise(ordered)}
    if len(ordered) < 4 or len(steps) != 1 or steps == {1}:
        return ""
    return f"{ordered[0]}-{ordered[-1]} step {steps.pop()}"


def _runs(ordered: list[int]) -> str:
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def count_text(count: int, noun: str, plural: str = "") -> str:
    """ "1 layer", "32 layers"; plural: where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
