"""The call of sparse latent attention, for every backend: checked, then handed to its kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from attnctl.kernels.batch_checks import check_tokens
from attnctl.kernels.latent.cache import LatentCache
from attnctl.kernels.latent.checks import check_named
from attnctl.kernels.metadata_checks import rows_of_unread
from attnctl.ops.indexer import index_cache_shape
from attnctl.ops.mla import Latent
from attnctl.ops.mla_sparse import check_slots
from attnctl.runtime import Metadata


class SparseLatent(LatentCache, ABC):
    """MlaSparseRuntime but for `_sparse` and the indexer's calls."""

    packed = True
    index_cache_shape = staticmethod(index_cache_shape)

    @abstractmethod
    def _sparse(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        slots: Tensor,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        """Writes out [T, H, L] and lse [T, H]; there is a sequence and a query token."""

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
        """[T, H, L] over the named slots. InputError where the tensors do not fit together."""
        # contexts are not read here: whoever named the slots has read them
        rows = rows_of_unread(self.name, metadata)
        self._check_call(query, cache, metadata, params, out, lse)
        check_tokens(self.name, rows, query.shape[0])
        check_named(self.name, slots, query)
        if check:
            check_slots(slots, cache)
        tokens, heads, _ = query.shape
        if out is None:
            out = query.new_empty(tokens, heads, params.kv_lora_rank)
        if tokens and metadata.seq_lens.shape[0]:
            self._sparse(query, cache, metadata, slots, params, out, lse)
        return out
