"""Phrases for what a rule accepts."""

from __future__ import annotations

from collections.abc import Iterable


def any_of(values: Iterable[object]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def both(one: str, other: str) -> str:
    """Return two sources as one text; a source that is said twice is said once."""
    return " and ".join(dict.fromkeys(text for text in (one, other) if text))


def in_range(multiple_of: int, at_least: int, at_most: int | None) -> str:
    """Return "a multiple of 8, at least 32, at most 256", of which each part may be missing."""
    parts = [f"a multiple of {multiple_of}"] if multiple_of > 1 else []
    if at_least > 1:
        parts.append(f"at least {at_least}")
    if at_most is not None:
        parts.append(f"at most {at_most}")
    return ", ".join(parts) or "any"
