"""Checks of the declaration by itself: its fields, its names, what its import costs."""

from __future__ import annotations

from attnctl.conformance import fail
from attnctl.declared import check
from attnctl.layer import FEATURES
from attnctl.registry import BUILT_IN, Backend, Registry

HEAVY = ("torch", "triton", "numpy", "transformers")
"""What no declaration may import: it is read by commands that run without them."""

IMPORT_LIMIT_S = 60.0


def check_fields(backend: Backend, registry: Registry) -> None:
    """Every field holds what it should, and the name is not that of a built-in backend."""
    built_in = {one.name for one in registry.backends if one.origin == BUILT_IN}
    try:
        check(backend, () if backend.origin == BUILT_IN else built_in)
    except (TypeError, ValueError) as error:
        fail(backend, f"its declaration: {error}")


def check_names(backend: Backend) -> None:
    """It is declared in a package of its name in lower case, as its kernel.py is looked for there.

    A module that is no package has no room for a kernel.
    """
    folder = backend.module.rpartition(".")[2]
    if folder != backend.name.lower():
        fail(backend, f"declare it in a folder {backend.name.lower()}, found module {folder!r}")
    from importlib.util import find_spec

    found = find_spec(backend.module)
    if found is None or found.submodule_search_locations is None:
        fail(backend, f"{backend.module} must be a folder with __init__.py, found a single module")


def check_features(backend: Backend) -> None:
    """A feature is yes, no or a condition; one that no rule answers would be taken for a yes."""
    codes = [rule.code for rule in backend.rules]
    unclear = [name for name in FEATURES if codes.count(name) != 1]
    if unclear:
        fail(
            backend,
            f"its rules do not answer once for {', '.join(unclear)}: add *features(...) of "
            "attnctl.requirements with the names of those that its kernels have",
        )


def check_import(backend: Backend) -> None:
    """A fresh interpreter in which no heavy package can be imported reads the declaration."""
    import subprocess
    import sys

    script = (
        f"import sys\nfor name in {HEAVY!r}:\n    sys.modules[name] = None\n"
        f"import {backend.module}\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=IMPORT_LIMIT_S,
        check=False,
    )
    if found.returncode:
        last = (found.stderr.strip().splitlines() or [f"exit code {found.returncode}"])[-1]
        fail(
            backend,
            f"its declaration must load without {', '.join(HEAVY)}: {last}; move such imports to "
            "kernel.py",
        )
