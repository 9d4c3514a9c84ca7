"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

from faulty.reference import Reference


class Raises(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        raise RuntimeError("no such kernel for this shape")


RUNTIME = Raises()
