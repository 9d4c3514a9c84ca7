"""Rival kernels of the state backends: installed packages behind the bundled kernels' own call.

A module is named after its kernel and has a function for each operation that it serves:

    gdn(inputs, state, metadata, out, load)     load: import_module, or what stands for it

It refuses by InputError what the package cannot do, and never falls back to another kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from attnctl.exits import InputError
from attnctl.kernels.libraries import Load


def importable(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of these kernels whose package is installed, without importing it."""
    return tuple(name for name in names if find_spec(name) is not None)


def rival(kernel: str, op: str) -> Callable[..., None]:
    """The function that computes `op` with a rival kernel."""
    found: Callable[..., None] = getattr(import_module(f"{__name__}.{kernel}"), op)
    return found


def loaded(kernel: str, load: Load, module: str) -> Any:
    """A package's module. InputError: it cannot be imported."""
    try:
        return load(module)
    except ImportError as error:
        raise InputError(
            f"kernel {kernel}: {module} cannot be imported ({error}); install it, or take the "
            "bundled kernel"
        ) from error


def refuse(kernel: str, wanted: bool, what: str) -> None:
    """InputError where the batch wants what the kernel cannot do."""
    if wanted:
        raise InputError(f"kernel {kernel}: {what}; take the bundled kernel for such a batch")
