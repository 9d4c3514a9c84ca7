"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

from attnctl.exits import AbsentError
from faulty.reference import Reference


class Lacks(Reference):
    """Without the version of its library that takes windows."""

    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        if params.window is not None:
            raise AbsentError("LACKS: version 4 cannot be loaded: no module named lacks.four")
        return super().forward(query, cache, metadata, params, out)


RUNTIME = Lacks()
