"""What a child that compiles must find in its environment to know the planted backends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLUGINS = Path(__file__).parent.parent / "plugins"


@contextmanager
def planted_plugins(cache: Path) -> Iterator[None]:
    """Nothing taken from Triton's own cache; afterwards all is as it was."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(PLUGINS), before.get("PYTHONPATH")))
    )
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    os.environ.pop("TRITON_INTERPRET", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
