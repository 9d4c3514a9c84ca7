"""CPU_ATTN's runtime: a cache of K and V side by side, head-major inside a block."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.findings import Finding
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

if TYPE_CHECKING:
    from attnctl.kernels.cpu import Kernels
    from attnctl.probe.host import Host

BLOCK_MULTIPLE = 32


class CpuAttention:
    """PagedRuntime on the processor. The kernels are built, or found built, at the first call."""

    def __init__(self, host: Host | None = None) -> None:
        self._host = host
        self._kernels: Kernels | None = None
        self._finding: Finding | None = None

    def get_name(self) -> str:
        return "CPU_ATTN"

    def is_ssm(self) -> bool:
        return False

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv), K before V. Any strides work; cache_stride_order says the best.

        InputError: block_size is no multiple of 32.
        """
        if block_size < 1 or block_size % BLOCK_MULTIPLE:
            raise InputError(
                f"CPU_ATTN: block_size must be a multiple of {BLOCK_MULTIPLE}; it is {block_size}. "
                f"Try {max(BLOCK_MULTIPLE, -(-block_size // BLOCK_MULTIPLE) * BLOCK_MULTIPLE)}"
            )
        width_v = head_size if head_size_v is None else head_size_v
        return (num_blocks, block_size, num_kv_heads, head_size + width_v)

    def cache_stride_order(self) -> tuple[int, ...]:
        """The dimensions of cache_shape in the order of memory: heads outside tokens in a block.

        shape = cache_shape(...); order = cache_stride_order()
        cache = torch.empty([shape[x] for x in order]).permute([order.index(x) for x in range(4)])
        """
        return (0, 2, 1, 3)

    def finding(self) -> Finding:
        """What computes: the compiler and flags of the C++ kernel, or why it is torch instead."""
        self._open()
        assert self._finding is not None
        return self._finding

    def build_metadata(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        slot_mapping: Tensor,
        *,
        max_query_len: int,
        max_seq_len: int,
    ) -> Metadata:
        return Metadata(
            query_start_loc=query_start_loc.to(torch.int32).contiguous(),
            seq_lens=seq_lens.to(torch.int32).contiguous(),
            block_table=block_table.to(torch.int32).contiguous(),
            slot_mapping=slot_mapping.to(torch.int64).contiguous(),
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
        )

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        width = key.shape[2]
        _check_scales(cache, params)
        (self._kernels or self._open()).write(
            key,
            value,
            cache[..., :width],
            cache[..., width:],
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
        """[T, H, Dv] in the query's dtype. InputError where the tensors do not fit together."""
        tokens, heads, width = query.shape
        if heads % cache.shape[2]:
            raise InputError(
                f"CPU_ATTN: {heads} query heads do not divide by the cache's {cache.shape[2]} KV "
                "heads; pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
            )
        _check_scales(cache, params)
        if out is None:
            out = query.new_empty(tokens, heads, cache.shape[3] - width)
        (self._kernels or self._open()).attend(
            query,
            cache[..., :width],
            cache[..., width:],
            metadata.block_table,
            metadata.query_start_loc,
            metadata.seq_lens,
            params,
            out,
        )
        return out

    def _open(self) -> Kernels:
        if self._kernels is None:
            from attnctl.kernels.cpu import open_kernels
            from attnctl.probe.realhost import RealHost

            self._kernels, self._finding = open_kernels(self._host or RealHost())
            if not self._finding.met:
                warnings.warn(
                    f"CPU_ATTN computes in plain torch, slowly: {self._finding.found}. "
                    f"Try: {self._finding.fix}",
                    stacklevel=3,
                )
        return self._kernels


def _check_scales(cache: Tensor, params: Paged) -> None:
    tensors = isinstance(params.k_scale, Tensor), isinstance(params.v_scale, Tensor)
    per_token = cache.dtype is torch.int8
    if tensors != (per_token, per_token):
        wanted = "tensors [N, P, Hk] float32" if per_token else "numbers"
        raise InputError(f"CPU_ATTN: a {cache.dtype} cache takes k_scale and v_scale as {wanted}")


RUNTIME = CpuAttention()
