"""Whether the installed Triton compiles the kernels that are written in Gluon."""

from __future__ import annotations

from functools import lru_cache

import triton

VERSIONS = (3, 6), (3, 9)
"""The first and the last Triton whose Gluon compiles them; its names change."""


@lru_cache(maxsize=1)
def known_triton() -> bool:
    version = tuple(map(int, triton.__version__.split(".")[:2]))
    return VERSIONS[0] <= version <= VERSIONS[1]
