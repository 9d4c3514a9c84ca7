"""FLASH_ATTN's runtime: FlashAttention 2, 3 or 4 over the packed cache, read in place."""

from __future__ import annotations

from attnctl.kernels.paged.flash_runtime import FlashAttention

RUNTIME = FlashAttention("FLASH_ATTN")
