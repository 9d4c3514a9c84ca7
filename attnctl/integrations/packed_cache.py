"""transformers' cache with a layer's keys and values in blocks, where paged kernels read them."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from attnctl.exits import InputError

BLOCK = 64
"""Tokens by which room is added: a multiple of every page that attnctl's backends prefer."""


class PackedLayer(DynamicLayer):
    """One layer's keys and values, each token's V behind its K, with room for more tokens.

    keys and values are views [B, Hk, S, D] and [B, Hk, S, Dv], which any attention function reads.
    """

    def __init__(self) -> None:
        super().__init__()
        # [B, room, Hk, D + Dv]
        self._store: Tensor | None = None
        self._length = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Stores [B, Hk, T, D] and [B, Hk, T, Dv] behind what is there; views of all of it."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        batch, heads, tokens, width = key_states.shape
        start, end = self._length, self._length + tokens
        if self._store is None or self._store.shape[1] < end:
            room = -(-max(end, 2 * start, 4 * BLOCK) // BLOCK) * BLOCK
            store = key_states.new_zeros(batch, room, heads, width + value_states.shape[3])
            if self._store is not None:
                store[:, :start] = self._store[:, :start]
            self._store = store
        new = self._store[:, start:end].transpose(1, 2)
        new[..., :width] = key_states
        new[..., width:] = value_states
        self._show(end, width)
        return self.keys, self.values

    def _show(self, length: int, width: int) -> None:
        self._length = length
        if self._store is not None:
            rows = self._store[:, :length].transpose(1, 2)
            self.keys, self.values = rows[..., :width], rows[..., width:]

    def _choose(self, order: Tensor) -> None:
        """The sequences of these indices, in this order."""
        if self._store is not None:
            self._store = self._store[order.to(self._store.device)]
            self._show(self._length, self.keys.shape[3])

    def get_seq_length(self) -> int:
        return self._length

    def reset(self) -> None:
        """Forgets every token and keeps the room."""
        if self._store is not None:
            self._show(0, self.keys.shape[3])

    def crop(self, tokens_to_remove: int) -> None:
        """Forgets the last tokens: as many as a number below zero says."""
        if tokens_to_remove > 0:
            raise InputError("PackedCache.crop: give the tokens to remove as a number below zero")
        if self._store is not None:
            self._show(max(0, self._length + tokens_to_remove), self.keys.shape[3])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequence b becomes what sequence beam_idx[b] was."""
        self._choose(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keeps these sequences alone."""
        self._choose(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each sequence so many times over."""
        if self._store is not None:
            self._store = self._store.repeat_interleave(repeats, dim=0)
            self._show(self._length, self.keys.shape[3])


class PackedCache(Cache):
    """A cache whose full attention layers are PackedLayers; the others are transformers' own.

    Padding makes a call copy what it reads, whatever the cache.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        usual = DynamicCache(config=config)
        packed = (PackedLayer() if type(one) is DynamicLayer else one for one in usual.layers)
        super().__init__(layers=list(packed))
