"""TRITON_ATTN_DIFFKV's runtime: the bundled paged kernels."""

from attnctl.kernels.triton.paged.runtime import TritonAttention

RUNTIME = TritonAttention("TRITON_ATTN_DIFFKV")
