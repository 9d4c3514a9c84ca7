"""Backends around the specification itself, each but one with a planted fault."""

from __future__ import annotations

from attnctl.registry import Backend, Rank
from attnctl.requirements import operation


def declare(name: str) -> Backend:
    """A backend of paged attention that asks for nothing and runs on a CPU."""
    return Backend(
        name=name,
        summary="planted for a test",
        ops=("paged",),
        rules=(operation("paged"),),
        ranks=(Rank(platform="cpu", place=900),),
        kernel="bundled",
    )
