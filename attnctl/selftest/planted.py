"""A runtime with one call of another replaced."""

from __future__ import annotations

from typing import Any


class Planted:
    """The sound runtime, but for the calls that are given: name -> what is called instead."""

    def __init__(self, sound: Any, **calls: Any) -> None:
        self._sound = sound
        self.__dict__.update(calls)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sound, name)
