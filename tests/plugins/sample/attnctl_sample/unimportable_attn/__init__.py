"""UNIMPORTABLE_ATTN: built on a library that nobody has."""

import library_that_nobody_has  # noqa: F401

from attnctl.registry import Backend
from attnctl.requirements import operation

BACKEND = Backend(
    name="UNIMPORTABLE_ATTN",
    summary="never seen",
    ops=("paged",),
    rules=(operation("paged"),),
)
