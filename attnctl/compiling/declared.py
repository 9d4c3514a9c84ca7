"""What a backend wants compiled for GPUs that are not here.

A backend's folder may hold compiled.py, without torch: CASES, texts of cases that meet every kernel
of the backend once as it is shipped, and MORE, other widths, dtypes and batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from attnctl.ops.case import Case, split_case
from attnctl.ops.catalog import case_of
from attnctl.registry import Backend


def compiled_backends(backends: Iterable[Backend]) -> tuple[Backend, ...]:
    """Those of which something is compiled."""
    return tuple(backend for backend in backends if declared(backend))


def declared(backend: Backend, quick: bool = False) -> tuple[Case, ...]:
    """The cases that a backend wants compiled; quick: those alone that meet each kernel once.

    InputError: one of its texts is no case.
    """
    if backend.kernel != "bundled":
        return ()
    try:
        module = import_module(f"{backend.module}.compiled")
    except ModuleNotFoundError as error:
        if error.name != f"{backend.module}.compiled":
            raise
        return ()
    names = ("CASES",) if quick else ("CASES", "MORE")
    texts = (text for name in names for text in getattr(module, name, ()))
    return tuple(case_of(*split_case(text)) for text in texts)
