"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

from faulty.reference import Reference


class LeavesNan(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        super().forward(query, cache, metadata, params, out)
        if out.numel():
            out[0, -1, -1] = float("nan")
        return out


RUNTIME = LeavesNan()
