"""The libraries behind adapters: the modules that bring them, and one refusal where none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnctl.exits import AbsentError, InputError, absent

Load = Callable[[str], Any]
"""import_module, or what stands for it."""

MISSES = (ImportError, AttributeError, OSError)
"""What comes of a module that is not there, is of another version, or does not load."""


class Refusals:
    """Why none of the modules that may bring a library is taken. name: of the backend."""

    def __init__(self, name: str, library: str) -> None:
        self._name, self._library = name, library
        self._reasons: list[str] = []
        self._absent = True

    def failed(self, module: str, error: BaseException, what: str = "") -> None:
        """The module could not be loaded. what: of the library it was to bring, before its name."""
        self._reasons.append(f"{what}{module}: {error}")
        self._absent = self._absent and absent(error, module)

    def unfit(self, reason: str) -> None:
        """A module has not what is asked for, whether it is there or not."""
        self._reasons.append(reason)

    def error(self) -> InputError:
        """AbsentError where each module that failed is one that is not installed."""
        kind = AbsentError if self._reasons and self._absent else InputError
        said = "; ".join(self._reasons) or "no version takes this device and layer"
        return kind(
            f"{self._name}: {self._library} cannot be loaded: {said}. Install it, or take another "
            "backend"
        )


def loaded(name: str, library: str, load: Load, *modules: str, attribute: str = "") -> Any:
    """The first of these modules that loads, or its attribute.

    InputError: none does, with every reason; AbsentError: none is installed.
    """
    refusals = Refusals(name, library)
    for module in modules:
        try:
            found = load(module)
            return getattr(found, attribute) if attribute else found
        except MISSES as error:
            refusals.failed(module, error)
    raise refusals.error()
