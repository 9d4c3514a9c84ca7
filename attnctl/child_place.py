"""Where a child process of the worker stands, what it imports from, and its environment."""

from __future__ import annotations

import os
from pathlib import Path

START = (
    "import sys; path = {path!r}; "
    "sys.path[:] = path + [x for x in sys.path if x and x not in path]; import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
"""A child imports from where its parent does, and nothing that lies in the folder they stand in:
a torch.py there, or a checkout of torch, is not the torch of this environment."""


def environment() -> dict[str, str]:
    """The parent's, without a wish that kernels be interpreted: a child says so where it does."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # what a child starts (torch's compile workers) must not look there either
    return {**kept, "PYTHONSAFEPATH": "1"}


def folder() -> str | None:
    """Where a child stands: its parent's folder, or the root where that one was removed.

    Libraries that look for their own files from the current folder end the process without one.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        return os.sep
    return None
