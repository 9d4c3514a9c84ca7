"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

from faulty.reference import Reference


class Overruns(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        super().forward(query, cache, metadata, params, out)
        out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
        return out


RUNTIME = Overruns()
