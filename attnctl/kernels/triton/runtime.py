"""The runtime of the bundled Triton kernels: TRITON_ATTN, TRITON_ATTN_DIFFKV and relations."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.packed_cache import PackedCache, views
from attnctl.kernels.triton import Knobs, paged_attention, write_cache
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata


class TritonAttention(PackedCache):
    """PagedRuntime on any GPU that Triton compiles for, and in its interpreter without one."""

    def __init__(self, name: str, block_multiple: int = 16, knobs: Knobs | None = None) -> None:
        self.name = name
        self.block_multiple = block_multiple
        self._knobs = knobs

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        """One launch; slots of -1 and rows past the slots are left alone."""
        check_device(self.name, cache)
        write_cache(
            key,
            value,
            *views(cache, key.shape[2]),
            metadata.slot_mapping,
            params.k_scale,
            params.v_scale,
        )

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """[T, H, Dv]. Launches by shapes alone and waits for nothing: a CUDA graph can hold it."""
        check_device(self.name, query)
        return paged_attention(
            query,
            *views(cache, query.shape[2]),
            metadata.block_table,
            metadata.query_start_loc,
            metadata.seq_lens,
            params,
            max_query_len=metadata.max_query_len,
            max_seq_len=metadata.max_seq_len,
            out=out,
            knobs=self._knobs,
        )


def check_device(name: str, tensor: Tensor, instead: str = "CPU_ATTN") -> None:
    """InputError: a tensor of the processor, and kernels that are not interpreted.

    instead: the backend that computes there.
    """
    if not tensor.is_cpu or os.environ.get("TRITON_INTERPRET") == "1":
        return
    if torch.cuda.is_available():
        raise InputError(
            f"{name}: its tensors lie on the cpu; move them to the GPU, or set TRITON_INTERPRET=1 "
            "before Python starts to try the kernels in Triton's interpreter"
        )
    raise InputError(
        f"{name}: no GPU driver is active and its tensors lie on the cpu; set TRITON_INTERPRET=1 "
        f"before Python starts to try the kernels in Triton's interpreter, or use {instead}"
    )
