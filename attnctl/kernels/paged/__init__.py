"""Paged attention: what a call must be, the packed cache, and FlashAttention in its versions."""
