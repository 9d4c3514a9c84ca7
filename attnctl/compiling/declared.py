"""What a backend wants compiled for GPUs that are not here.

A backend's folder may hold compiled.py, without torch: CASES, texts of cases that meet every kernel
of the backend once as it is shipped, and MORE, other widths, dtypes and batches. SPILLS, prefix of
an arch -> bytes: what a thread may spill there, where it is known to spill more than elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

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
    module = _declaration(backend)
    names = ("CASES",) if quick else ("CASES", "MORE")
    texts = (text for name in names for text in getattr(module, name, ()))
    return tuple(case_of(*split_case(text)) for text in texts)


def spills_bytes(backend: Backend, arch: str, otherwise: int) -> int:
    """What a thread of this backend's kernels may spill on an arch."""
    known: dict[str, int] = getattr(_declaration(backend), "SPILLS", {})
    return next((most for prefix, most in known.items() if arch.startswith(prefix)), otherwise)


def _declaration(backend: Backend) -> ModuleType | None:
    """The folder's compiled.py; None where it has none, or calls somebody else's kernels."""
    if backend.kernel != "bundled":
        return None
    name = f"{backend.module}.compiled"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return None
