"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

import torch

from faulty.reference import Reference


class Unsteady(Reference):
    """Adds up in another order every other time, as atomic sums may: right, and not the same."""

    def __init__(self) -> None:
        self.calls = 0

    def forward(self, query: Any, cache: Any, metadata: Any, params: Any, out: Any = None) -> Any:
        out = super().forward(query, cache, metadata, params, out)
        self.calls += 1
        if self.calls % 2 == 0:
            first = out.flatten()[:1]
            first.copy_(torch.nextafter(first, first.new_full((1,), torch.inf)))
        return out


RUNTIME = Unsteady()
