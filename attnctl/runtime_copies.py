"""How a runtime is copied and pickled: made anew, from what it was made of."""

from __future__ import annotations

from typing import Any, TypeVar

Made = TypeVar("Made", bound="MadeAnew")


class MadeAnew:
    """Copies, deep or shallow, and what a pickle brings elsewhere, are as on the first day.

    Nothing that a runtime keeps between its calls goes along: kernels that are loaded, launches,
    the batch seen last. All that it is must be in what __init__ is given.
    """

    _made_of: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls: type[Made], *given: Any, **named: Any) -> Made:
        made = super().__new__(cls)
        made._made_of = given, named
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        given, named = self._made_of
        return _made, (type(self), given, named)


def _made(kind: type[Made], given: tuple[Any, ...], named: dict[str, Any]) -> Made:
    return kind(*given, **named)
