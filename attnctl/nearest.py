"""The known name that a misspelt one most likely means."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The question " Did you mean X?", or "" where nothing is near; case does not count."""
    from difflib import get_close_matches

    spellings = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return f" Did you mean {spellings[near[0]]}?" if near else ""
