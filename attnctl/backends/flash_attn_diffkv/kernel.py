"""FLASH_ATTN_DIFFKV's runtime: FlashAttention 3 or 4 over a packed cache of unequal widths."""

from __future__ import annotations

from attnctl.kernels.paged.flash_runtime import FlashAttention

RUNTIME = FlashAttention("FLASH_ATTN_DIFFKV")
