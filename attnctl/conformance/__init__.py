"""What a backend of whatever distribution must do, as checks that say what is wrong.

Each check returns on success and raises AssertionError with a sentence, the backend's name first.
attnctl.testing makes tests of them.
"""

from __future__ import annotations

from typing import NoReturn

import msgspec

from attnctl.registry import Backend


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One backend under test, and how much of it.

    cases: texts of the only cases to run; none: all that its rules take. quick: each kind once.
    timeout_s: limit of one case. deterministic: each case twice, to the same bits.
    """

    backend: Backend
    cases: tuple[str, ...] = ()
    quick: bool = False
    timeout_s: float = 60.0
    deterministic: bool = True


def fail(backend: Backend, text: str) -> NoReturn:
    """Raises AssertionError: the backend's name and what is wrong with it."""
    raise AssertionError(f"{backend.name}: {text}")
