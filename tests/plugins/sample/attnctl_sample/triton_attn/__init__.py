"""TRITON_ATTN: a name that is built in."""

from attnctl.registry import Backend
from attnctl.requirements import operation

BACKEND = Backend(
    name="TRITON_ATTN",
    summary="must not stand in for the built-in one",
    ops=("paged",),
    rules=(operation("paged"),),
)
