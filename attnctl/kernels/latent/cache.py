"""What runtimes of latent attention share, dense and sparse: the cache, the batch and the checks.

One row of L + R columns a token for all heads, [N, P, L + R]; sparse backends may take rows of
bytes (attnctl.ops.packed_rows) instead. A backend adds how it attends.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.latent.checks import (
    check_cache,
    check_out,
    check_query,
    check_row_slots,
    check_rows,
    check_sizes,
)
from attnctl.kernels.latent.rows import PACKED, encode_rows, store_rows
from attnctl.kernels.metadata_checks import CheckedBatches
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import row_bytes
from attnctl.runtime import Metadata

Store = Callable[[Tensor, Tensor, Tensor], None]


class LatentCache(CheckedBatches):
    """The half of both protocols of attnctl.latent_runtime that does not attend."""

    block_multiple = 16
    packed = False

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        kv_cache_dtype: str = "auto",
    ) -> tuple[int, ...]:
        """(N, P, L + R), or (N, P, bytes) for fp8_ds_mla. InputError on a bad size."""
        rank, rope, multiple = kv_lora_rank, qk_rope_head_dim, self.block_multiple
        check_sizes(self.name, num_blocks, block_size, rank, rope, multiple)
        if kv_cache_dtype != PACKED:
            return num_blocks, block_size, rank + rope
        if not self.packed:
            raise InputError(
                f"{self.name}: rows of {PACKED} are not in its kernels; take a sparse backend, or "
                "another kv_cache_dtype"
            )
        return num_blocks, block_size, row_bytes(rank, rope)

    def write_cache(
        self, latent: Tensor, rope: Tensor, cache: Tensor, metadata: Metadata, params: Latent
    ) -> None:
        """InputError where rows, slots and cache do not fit together; nothing is written then."""
        self._check_device(cache)
        checked = self._checked(metadata)
        check_rows(self.name, latent, rope, cache, checked)
        width = latent.shape[1] + rope.shape[1]
        check_cache(self.name, cache, width, params, self.block_multiple, self.packed)
        check_row_slots(self.name, latent, cache, checked)
        self._store(encode_rows(latent, rope, cache, params), cache, checked.slot_mapping)

    def _store(self, rows: Tensor, cache: Tensor, slots: Tensor) -> None:
        """Puts rows [T, C] in their slots: one launch where Triton is, else plain torch."""
        store = store_rows if cache.is_cpu else _scatter()
        store(rows, cache, slots)

    def _check_device(self, tensor: Tensor) -> None:
        """InputError: a tensor of a device that the kernels do not run on."""

    def _check_call(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor | None,
        lse: Tensor | None,
    ) -> None:
        """InputError: the tensors of a call in the absorbed form do not fit together."""
        self._check_device(query)
        check_query(self.name, query, cache, metadata)
        width = query.shape[2]
        check_cache(self.name, cache, width, params, self.block_multiple, self.packed)
        check_out(self.name, query, params.kv_lora_rank, out, lse)


def _scatter() -> Store:
    try:
        from attnctl.kernels.triton.latent.scatter_rows import scatter_rows
    except ImportError:
        return store_rows
    return scatter_rows
