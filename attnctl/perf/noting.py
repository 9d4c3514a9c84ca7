"""The call that a case was judged by, kept so that the very same one can be timed. No torch."""

from __future__ import annotations

from functools import partial
from typing import Any

COMPUTING = frozenset({"forward", "prefill", "merge_states", "index_logits", "select_tokens"})
"""Methods of runtimes that compute; the last one that a case calls is the one that it is about."""


class Noting:
    """A runtime in all but that it keeps the last computing call that was made of it."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.last: partial[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._runtime, name)
        if name not in COMPUTING:
            return found

        def noted(*arguments: Any, **named: Any) -> Any:
            self.last = partial(found, *arguments, **named)
            return found(*arguments, **named)

        return noted
