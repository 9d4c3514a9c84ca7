"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

import msgspec

from faulty.reference import Reference


class OffByOne(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        if params.window is not None:
            params = msgspec.structs.replace(params, window=params.window + 1)
        return super().forward(query, cache, metadata, params, out)


RUNTIME = OffByOne()
