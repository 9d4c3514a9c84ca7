"""Times what an adapter's forward adds to the call it makes: the kernel is a function that returns.

    PYTHONPATH=. python benchmarks/adapter_overhead.py

One decode batch of 16 sequences, bfloat16, on the processor, of small heads: what is copied is no
Python. Microseconds a call, the least of 20 rounds; without `out` the output is allocated.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import torch

from attnctl.backends.flashinfer.kernel import FlashInfer
from attnctl.backends.rocm_aiter_fa.kernel import AiterAttention
from attnctl.backends.rocm_aiter_unified_attn.kernel import UnifiedAttention
from attnctl.backends.rocm_attn.kernel import RocmAttention
from attnctl.kernels.paged.flash_runtime import FlashAttention
from attnctl.ops.paged import Paged

SEQUENCES, LENGTH = 16, 30
HEADS, KV_HEADS, WIDTH = 4, 1, 16
FIXED = torch.zeros(SEQUENCES, HEADS, WIDTH, dtype=torch.bfloat16)


class Package:
    """Every module that an adapter may ask for: whatever is called returns one tensor."""

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        return returns if name not in WRAPPERS else self

    def is_fa_version_supported(self, version):
        return True

    def plan(self, *args, **kwargs):
        return None

    def run(self, *args, **kwargs):
        return FIXED


WRAPPERS = ("BatchPrefillWithPagedKVCacheWrapper", "BatchDecodeWithPagedKVCacheWrapper")


def returns(*args, **kwargs):
    """vLLM's and AITER's functions write into `out`; FlashAttention's own give a new tensor."""
    given = kwargs.get("out")
    return FIXED if given is None else given


def only(*names):
    def load(name):
        if name in names or not names:
            return Package()
        raise ModuleNotFoundError(name)

    return load


def hopper(device):
    return (9, 0)


ADAPTERS = {
    "FLASH_ATTN, FA3 of vLLM": FlashAttention("FLASH_ATTN", only("vllm.vllm_flash_attn"), hopper),
    "FLASH_ATTN, FA3": FlashAttention("FLASH_ATTN", only("flash_attn_interface"), hopper),
    "FLASH_ATTN, FA4": FlashAttention("FLASH_ATTN", only("flash_attn.cute"), hopper),
    "FLASHINFER": FlashInfer(only()),
    "ROCM_ATTN": RocmAttention(only()),
    "ROCM_AITER_FA": AiterAttention(only()),
    "ROCM_AITER_UNIFIED_ATTN": UnifiedAttention(only()),
}


def forward_us(runtime, out):
    size = torch.Size(runtime.cache_shape(64, 16, KV_HEADS, WIDTH))
    cache = torch.zeros(size, dtype=torch.bfloat16)
    query = torch.randn(SEQUENCES, HEADS, WIDTH).to(torch.bfloat16)
    tensors = SimpleNamespace(
        starts=torch.arange(SEQUENCES + 1, dtype=torch.int32),
        lengths=torch.full((SEQUENCES,), LENGTH, dtype=torch.int32),
        table=torch.zeros(SEQUENCES, 2, dtype=torch.int32),
        slots=torch.zeros(SEQUENCES, dtype=torch.int64),
    )
    metadata = runtime.build_metadata(*vars(tensors).values(), max_query_len=1, max_seq_len=LENGTH)
    params = Paged(scale=0.1)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(200):
            runtime.forward(query, cache, metadata, params, out)
        best = min(best, time.perf_counter() - start)
    return best / 200 * 1e6


def main():
    torch.set_num_threads(1)
    print(f"{'adapter':26}{'with out':>10}{'without':>10}")
    for name, runtime in ADAPTERS.items():
        given = torch.empty_like(FIXED)
        print(f"{name:26}{forward_us(runtime, given):10.1f}{forward_us(runtime, None):10.1f}")


if __name__ == "__main__":
    main()
