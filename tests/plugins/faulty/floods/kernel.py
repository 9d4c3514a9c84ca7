"""Planted for a test of smoke."""

from __future__ import annotations

import os
from typing import Any

from faulty.reference import Reference


class Floods(Reference):
    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        while True:  # as fast as it can, and for ever
            os.write(1, b"a library that does not stop talking\n" * 2000)


RUNTIME = Floods()
