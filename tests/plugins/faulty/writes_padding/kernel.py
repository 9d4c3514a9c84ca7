"""Planted for a test of smoke."""

from __future__ import annotations

from typing import Any

from faulty.reference import Reference


class WritesPadding(Reference):
    def kept(self, slots: Any) -> Any:
        return slots >= -1


RUNTIME = WritesPadding()
