"""What adapters to libraries of latent attention share; the bundled Triton kernels do the rest.

A library's decoding kernel computes the absorbed form where it takes a call. What it does not take,
the uncompressed form, the merge of states and the indexer are the bundled kernels', which read the
same cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

from torch import Tensor

from attnctl.kernels.latent.dense import DenseLatent
from attnctl.kernels.latent.sparse import SparseLatent
from attnctl.kernels.latent.tokens import name_slots, settle
from attnctl.kernels.libraries import Load
from attnctl.ops.indexer import Indexing
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

State = tuple[Tensor, Tensor | None]


class DenseAdapter(DenseLatent, ABC):
    """MlaRuntime on a library. load: import_module, or what stands for it."""

    bundled = "attnctl.backends.triton_mla.kernel"

    def __init__(self, load: Load = import_module) -> None:
        self._load = load

    @abstractmethod
    def _takes(
        self, query: Tensor, cache: Tensor, metadata: Metadata, params: Latent, lse: bool
    ) -> bool:
        """Whether the library computes this call; InputError where it cannot be loaded."""

    @abstractmethod
    def _library(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        lse: bool,
    ) -> State:
        """out [T, H, L] and, where asked for, lse [T, H], natural.

        Rows of no sequence may hold anything.
        """

    def _absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor | None,
    ) -> None:
        if not metadata.max_query_len:
            return
        if not self._takes(query, cache, metadata, params, lse is not None):
            self._other.forward(query, cache, metadata, params, out, lse)
            return
        found, top = self._library(query, cache, metadata, unscaled(params), lse is not None)
        settle(found, top, out, lse, metadata.query_start_loc, None, params.kv_scale)

    def prefill(self, *call: Any, **more: Any) -> Tensor:
        """The uncompressed form, as attnctl.latent_runtime.MlaRuntime has it."""
        found: Tensor = self._other.prefill(*call, **more)
        return found

    def merge_states(self, *call: Any, **more: Any) -> tuple[Tensor, Tensor]:
        """attnctl.ops.merge_states, as attnctl.latent_runtime.MlaRuntime has it."""
        found: tuple[Tensor, Tensor] = self._other.merge_states(*call, **more)
        return found

    @property
    def _other(self) -> Any:
        return self._load(self.bundled).RUNTIME


class SparseAdapter(SparseLatent, ABC):
    """MlaSparseRuntime on a library, with the bundled indexer."""

    bundled = "attnctl.backends.triton_mla_sparse.kernel"
    list_multiple = 1

    def __init__(self, load: Load = import_module) -> None:
        self._load = load

    @abstractmethod
    def _takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        """Whether the library computes this call; InputError where it cannot be loaded."""

    @abstractmethod
    def _library(
        self,
        query: Tensor,
        cache: Tensor,
        slots: Tensor,
        count: Tensor,
        params: Latent,
        lse: bool,
    ) -> State:
        """out [T, H, L] and, where asked for, lse [T, H], natural; anything in rows without slots.

        slots: [T, K] int32, a multiple of list_multiple places, -1 where no slot is named. count:
        [T] int32, how many are.
        """

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
        if not self._takes(query, cache, params, lse is not None):
            self._other.forward(query, cache, metadata, slots, params, out, lse)
            return
        total = cache.shape[0] * cache.shape[1]
        named, count = name_slots(slots, total, self.list_multiple)
        found, top = self._library(query, cache, named, count, unscaled(params), lse is not None)
        settle(found, top, out, lse, metadata.query_start_loc, count, params.kv_scale)

    def write_index(
        self, key: Tensor, index_cache: Tensor, metadata: Metadata, params: Indexing
    ) -> None:
        self._other.write_index(key, index_cache, metadata, params)

    def index_logits(self, *call: Any, **more: Any) -> Tensor:
        """As attnctl.latent_runtime.MlaSparseRuntime has it."""
        found: Tensor = self._other.index_logits(*call, **more)
        return found

    def select_tokens(self, *call: Any, **more: Any) -> Tensor:
        """As attnctl.latent_runtime.MlaSparseRuntime has it."""
        found: Tensor = self._other.select_tokens(*call, **more)
        return found

    @property
    def _other(self) -> Any:
        return self._load(self.bundled).RUNTIME


def unscaled(params: Latent) -> Latent:
    """The params of a cache whose values are what is stored: a library then knows no kv_scale.

    Attention over k * rows is k times attention over rows with logits of k times the scale.
    """
    if params.kv_scale == 1.0:
        return params
    return Latent(scale=params.scale * params.kv_scale, kv_lora_rank=params.kv_lora_rank)
