"""Planted for a test of smoke."""

from __future__ import annotations

import os
from typing import Any

from faulty.reference import Reference


class Prints(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        os.write(1, b"a library that talks\n" * 20_000)
        os.write(2, b"and complains\n" * 20_000)
        return super().forward(query, cache, metadata, params, out)


RUNTIME = Prints()
