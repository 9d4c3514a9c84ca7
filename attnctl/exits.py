"""Exit codes, and the one error type whose text is shown to the user as it is."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    NO = 1  # the answer is no: nothing eligible, a requested backend unmet, a diff differs
    USAGE = 2  # wrong usage, or input that cannot be read
    INTERRUPTED = 130  # Control-C, by the shell's convention


class AttnctlError(Exception):
    """One sentence for the user: what is wrong, where (file, key path), what to do about it."""

    exit_code = Exit.USAGE


class InputError(AttnctlError):
    """A file, a key or an option that cannot be read or does not make sense."""


class AbsentError(InputError):
    """A library, or the version of one, that a call needs and that is not installed."""


def absent(error: BaseException, module: str) -> bool:
    """Whether a failed import says that the module is not there, not that it is broken."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and f"{module}.".startswith(f"{name}.")


class NoLayerError(InputError, KeyError):
    """A layer that a plan does not hold; a mapping's own error too, so that `in` and get() work."""

    def __str__(self) -> str:
        # a KeyError shows its text in quotes
        return Exception.__str__(self)
