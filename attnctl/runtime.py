"""The library call: what a user's own program does with the backend that a decision picked.

    backend = attnctl.open_backend("TRITON_ATTN")
    cache = torch.empty(backend.cache_shape(N, P, Hk, D), dtype=..., device=...)
    metadata = backend.build_metadata(query_start_loc, seq_lens, block_table, slot_mapping, ...)
    backend.write_cache(key, value, cache, metadata)
    out = backend.forward(query, cache, metadata, params)

A backend's folder holds kernel.py with RUNTIME, an object of one of these protocols.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import msgspec

from attnctl.exits import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from attnctl.ops.paged import Paged
    from attnctl.registry import Registry


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, packed. Integers are known on the host, so that no call waits for the device.

    query_start_loc: [B + 1] int32. seq_lens: [B] int32, context tokens with this batch's own.
    block_table: [B, pages] int32. slot_mapping: [T] int64, page * P + offset of each new token,
    -1 for tokens that are not written. max_query_len, max_seq_len: bounds, exact or above.
    """

    query_start_loc: Tensor
    seq_lens: Tensor
    block_table: Tensor
    slot_mapping: Tensor
    max_query_len: int
    max_seq_len: int


@runtime_checkable
class PagedRuntime(Protocol):
    """A backend of the paged-attention family.

    key: [T, Hk, D], value: [T, Hk, Dv], query: [T, H, D]: any strides, the last dimension dense.
    cache: what cache_shape says, K and V of a token side by side in the last dimension.
    """

    def get_name(self) -> str: ...

    def is_ssm(self) -> bool: ...

    def cache_shape(
        self,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        head_size_v: int | None = None,
    ) -> tuple[int, ...]:
        """(N, P, Hk, D + Dv), or the backend's own order of the same. InputError on a bad P."""

    def build_metadata(
        self,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_table: Tensor,
        slot_mapping: Tensor,
        *,
        max_query_len: int,
        max_seq_len: int,
    ) -> Metadata: ...

    def write_cache(
        self, key: Tensor, value: Tensor, cache: Tensor, metadata: Metadata, params: Paged
    ) -> None:
        """Stores each new token's K and V in its slot; slot -1 and rows past the slots: nothing."""

    def forward(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Paged,
        out: Tensor | None = None,
    ) -> Tensor:
        """Attention of every query token over its sequence's cached context: [T, H, Dv]."""


def open_backend(name: str, registry: Registry | None = None) -> PagedRuntime:
    """The runtime of a backend. InputError: no such backend, or its kernel is not written yet."""
    if registry is None:
        from attnctl.registry import load

        registry = load()
    backend = registry.get(name)
    if backend is None:
        known = ", ".join(sorted(b.name for b in registry.backends))
        raise InputError(f"{name}: no such backend; there are {known}")
    if backend.kernel == "planned":
        raise InputError(f"{name}: its kernel is planned and not written yet; pick another backend")
    module = import_module(f"{backend.module}.kernel")
    return cast("PagedRuntime", module.RUNTIME)
