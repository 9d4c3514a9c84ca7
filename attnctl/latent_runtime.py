"""Latent attention as a user's program calls it, dense and sparse, and the metadata of a batch.

    backend = attnctl.open_backend("TRITON_MLA")
    cache = torch.empty(backend.cache_shape(N, P, 512, 64), dtype=..., device=...)
    metadata = backend.build_metadata(query_start_loc, seq_lens, block_table, slot_mapping, ...)
    backend.write_cache(latent, rope, cache, metadata, params)
    out = backend.prefill(query, cache, metadata, params, w_uk, w_uv)        # uncompressed
    out = backend.forward(absorbed_query, cache, metadata, params)           # absorbed

A sparse backend's indexer names context positions, which attnctl.ops.mla_sparse.to_slots turns
into the slots that its forward takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attnctl.runtime import BatchRuntime, Metadata

if TYPE_CHECKING:
    from torch import Tensor

    from attnctl.ops.indexer import Indexing
    from attnctl.ops.mla import Latent


def packed_batch(
    query_start_loc: Tensor,
    seq_lens: Tensor,
    block_table: Tensor,
    slot_mapping: Tensor,
    *,
    max_query_len: int,
    max_seq_len: int,
) -> Metadata:
    """The metadata of a backend that wants nothing but the batch itself, in its own dtypes."""
    import torch

    return Metadata(
        query_start_loc=query_start_loc.to(torch.int32).contiguous(),
        seq_lens=seq_lens.to(torch.int32).contiguous(),
        block_table=block_table.to(torch.int32).contiguous(),
        slot_mapping=slot_mapping.to(torch.int64).contiguous(),
        max_query_len=max_query_len,
        max_seq_len=max_seq_len,
    )


@runtime_checkable
class MlaRuntime(BatchRuntime, Protocol):
    """A backend of dense latent attention. Shapes are those of attnctl.ops.mla.

    cache: what cache_shape says, one row of L + R columns a token for all heads, any strides, the
    last dimension dense. lse: [T, H] float32, written where given. Rows of no sequence are left as
    they are in what the caller passes. InputError, of every call: as of PagedRuntime.
    """

    def cache_shape(
        self, num_blocks: int, block_size: int, kv_lora_rank: int, qk_rope_head_dim: int
    ) -> tuple[int, ...]:
        """(N, P, L + R). InputError on a bad P."""

    def write_cache(
        self, latent: Tensor, rope: Tensor, cache: Tensor, metadata: Metadata, params: Latent
    ) -> None:
        """Stores rows [T, L] and [T, R] in their slots; slot -1 and rows past them: nothing."""

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        """The absorbed form, for any number of query tokens: [T, H, L] from [T, H, L + R]."""

    def prefill(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        w_uk: Tensor,
        w_uv: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        chunk: int = 0,
    ) -> Tensor:
        """The uncompressed form: [T, H, Dv] from [T, H, nope + R], both of them for prefill.

        w_uk: [H, nope, L], w_uv: [H, Dv, L]. chunk: context tokens of a sequence that are
        uncompressed at a time, which bounds the memory; 0: all.
        """

    def merge_states(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention over two sets of keys from attention over each (attnctl.ops.merge_states)."""


@runtime_checkable
class MlaSparseRuntime(BatchRuntime, Protocol):
    """A backend of sparse latent attention, its indexer included.

    Shapes are those of attnctl.ops.mla_sparse and attnctl.ops.indexer. An adapter to a library
    without an indexer takes the bundled one. InputError, of every call: as of PagedRuntime.
    """

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        kv_lora_rank: int,
        qk_rope_head_dim: int,
        kv_cache_dtype: str = "auto",
    ) -> tuple[int, ...]:
        """(N, P, L + R), or (N, P, bytes) for the packed rows of fp8_ds_mla (torch.uint8)."""

    def write_cache(
        self, latent: Tensor, rope: Tensor, cache: Tensor, metadata: Metadata, params: Latent
    ) -> None:
        """Stores rows [T, L] and [T, R] in their slots, packed where the cache is uint8."""

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        slots: Tensor,
        params: Latent,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        *,
        check: bool = False,
    ) -> Tensor:
        """[T, H, L] from [T, H, L + R] over the named slots [T, K] int32.

        check: InputError on a slot beyond the cache, at the price of waiting for the device.
        """

    def index_cache_shape(self, num_blocks: int, block_size: int, head_dim: int) -> tuple[int, ...]:
        """(N, P, bytes) torch.uint8: a key and its scales a token (attnctl.ops.indexer)."""

    def write_index(
        self, key: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
    ) -> None:
        """Quantises and stores index keys [T, D] in their slots."""

    def index_logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
    ) -> Tensor:
        """[T, at least the longest context] float32, -inf where nothing is visible."""

    def select_tokens(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor | None = None,
    ) -> Tensor:
        """Context positions [T, K] int32 of the largest logits, in the order of the context."""
