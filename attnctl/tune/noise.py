"""What noise does to times that were taken in turns: rounds made alike, and a median's error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

FEW = 4
"""Candidates below which a round cannot be told from those that ran in it."""


def levelled(times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Each round's times over how slow that round was for all of them, against the others.

    times: by candidate, as many rounds each; a load of others that comes and goes, and a clock that
    falls, slow whole rounds. With fewer than FEW candidates they are left as they are.
    """
    found = {key: list(one) for key, one in times.items() if one}
    rounds = {len(one) for one in found.values()}
    if len(found) < FEW or len(rounds) != 1:
        return found
    usual = {key: median(one) for key, one in found.items()}
    slow = [
        median(one[turn] / usual[key] for key, one in found.items()) for turn in range(rounds.pop())
    ]
    return {
        key: [time / pace for time, pace in zip(one, slow, strict=True)]
        for key, one in found.items()
    }


def error_us(iqr_us: float, runs: int) -> float:
    """The standard error of a median of so many runs with this interquartile range."""
    # a normal distribution's: its quartiles lie 1.349 apart, its median errs by 1.2533
    return float(1.2533 * iqr_us / 1.349 / max(1, runs) ** 0.5)
