"""Paged attention: what a call must be, the packed cache, and FlashAttention in its versions.

checks.py refuses calls, packed_cache.py is what runtimes of somebody else's kernels share, and
chunks.py serves kernels that have no chunks; flash_runtime.py and flash.py are FlashAttention.
"""
