"""Planted for a test of smoke."""

from __future__ import annotations

import time
from typing import Any

from faulty.reference import Reference


class Hangs(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        if params.window is not None:
            time.sleep(600)
        return super().forward(query, cache, metadata, params, out)


RUNTIME = Hangs()
