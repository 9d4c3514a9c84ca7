"""CPU_ATTN's runtime: a cache of K and V side by side, head-major inside a block."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.batch_checks import CheckedMetadata, check_batch
from attnctl.kernels.cpu.built_runtime import Built
from attnctl.kernels.cpu.checks import check_cache, check_query, check_sizes, check_write
from attnctl.kernels.metadata_checks import CheckedBatches
from attnctl.kernels.paged.checks import check_params_of, check_spread
from attnctl.kernels.paged.packed_cache import over_scales
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata
from attnctl.tune.settings import Limits, Setting, Work, check_knobs, refuse_kernel

if TYPE_CHECKING:
    from attnctl.findings import Finding
    from attnctl.kernels.cpu.paged import Kernels
    from attnctl.probe.host import Host


KNOBS = {
    "threads": 1024,
    "least_tokens": 1 << 20,
    "parts": 64,
    "block_rows": 768,
    "direct_rows": 16,
}
"""Knobs and the most of each. threads: of one call. least_tokens: of context in a part of its own.
parts: of the work for each thread. block_rows: query rows that are packed at a time. direct_rows:
rows of a group up to which keys are read where they are; without it 16, and 8 of bfloat16 on a
processor with AMX."""

LEAST = {"threads": 1, "least_tokens": 64, "parts": 1, "block_rows": 12, "direct_rows": 0}
NO_KNOBS: Mapping[str, Any] = MappingProxyType({})


class CpuAttention(Built["Kernels"], CheckedBatches):
    """PagedRuntime on the processor. The kernels are built, or found built, at the first call."""

    name = "CPU_ATTN"

    def __init__(self, host: Host | None = None, knobs: Mapping[str, Any] = NO_KNOBS) -> None:
        self._host = host
        self._knobs = knobs

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """Threads, how work is cut for them, rows at a time, and the cache's blocks."""
        from attnctl.tune.measure.cpu_settings import cpu_settings

        return cpu_settings(work, limits)

    def with_knobs(self, knobs: Mapping[str, Any], kernel: str = "") -> CpuAttention:
        """This runtime with some knobs changed. InputError: it has no such knob or kernel."""
        refuse_kernel(self.name, kernel)
        found = check_knobs(self.name, knobs, KNOBS)
        for name, value in found.items():
            if not LEAST[name] <= int(value) <= KNOBS[name]:
                raise InputError(
                    f"CPU_ATTN: knob {name} is {value}: must be from {LEAST[name]} to {KNOBS[name]}"
                )
        return CpuAttention(self._host, found)

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv), K before V. Any strides work; cache_stride_order says the best.

        InputError: block_size is no multiple of 32, a head size none of 8 from 16 on, or a size is
        no positive integer.
        """
        width_v = head_size if head_size_v is None else head_size_v
        check_sizes(num_blocks, block_size, num_kv_heads, head_size, width_v)
        return (num_blocks, block_size, num_kv_heads, head_size + width_v)

    def cache_stride_order(self) -> tuple[int, ...]:
        """The dimensions of cache_shape in the order of memory: heads outside tokens in a block.

        shape = cache_shape(...); order = cache_stride_order()
        cache = torch.empty([shape[x] for x in order]).permute([order.index(x) for x in range(4)])
        """
        return (0, 2, 1, 3)

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        """InputError where rows, slots and cache do not fit together; nothing is written then."""
        checked = self._checked(metadata)
        check_write(key, value, cache, checked, params)
        key, value = over_scales(key, value, cache, params)
        width = key.shape[2]
        (self._kernels or self._open()).write(
            key,
            value,
            cache[..., :width],
            cache[..., width:],
            checked.slot_mapping,
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
        checked = self._checked(metadata)
        check_query(query, cache, checked, out)
        if out is not None:
            check_spread(self.name, out)
        check_cache(cache, params)
        tokens, heads, width = query.shape
        check_params_of(self.name, params, query, checked.seq_lens.shape[0])
        self._check_places(checked, cache)
        if out is None:
            out = query.new_empty(tokens, heads, cache.shape[3] - width)
        # one call for both halves: each costs as much as all checks of one tensor
        keys, values = cache.split_with_sizes((width, cache.shape[3] - width), -1)
        (self._kernels or self._open()).attend(
            query,
            keys,
            values,
            checked.block_table,
            checked.query_start_loc,
            checked.seq_lens,
            params,
            out,
        )
        return out

    def _check_batch(self, metadata: Metadata) -> CheckedMetadata:
        """Its kernels go to bare addresses: nothing of another device passes unread."""
        return check_batch(self.name, metadata)

    def _checked(self, metadata: Metadata) -> CheckedMetadata:
        return metadata if isinstance(metadata, CheckedMetadata) else self._check_batch(metadata)

    def _build(self, host: Host) -> tuple[Kernels, Finding]:
        from attnctl.kernels.cpu.paged import open_kernels

        kernels, finding = open_kernels(host)
        if self._knobs and hasattr(kernels, "tune"):
            kernels.tune(**self._knobs)
        return kernels, finding


RUNTIME = CpuAttention()
