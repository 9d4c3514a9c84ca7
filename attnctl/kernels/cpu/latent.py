"""Latent attention and its indexer on a processor: C++ built on first use, or torch without it.

open_latent() and open_indexer() give the object that computes and the finding that says what it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from attnctl.findings import Finding

if TYPE_CHECKING:
    from torch import Tensor

    from attnctl.ops.indexer import Indexing
    from attnctl.ops.mla import Latent
    from attnctl.probe.host import Host
    from attnctl.runtime import Metadata

LATENT_SOURCE = Path(__file__).with_name("latent.cpp")
INDEXER_SOURCE = Path(__file__).with_name("indexer.cpp")


class LatentKernels(Protocol):
    """What both ways of computing offer; `name` is "c++" or "torch".

    out: [T, H, L] in the query's dtype; lse: [T, H] float32. Rows of no sequence stay.
    """

    name: str

    def absorbed(
        self,
        query: Tensor,
        cache: Tensor,
        metadata: Metadata,
        params: Latent,
        out: Tensor,
        lse: Tensor,
    ) -> None: ...

    def sparse(
        self, query: Tensor, cache: Tensor, slots: Tensor, params: Latent, out: Tensor, lse: Tensor
    ) -> None:
        """slots: [T, K] int of every query token."""

    def uncompressed(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        key_start_loc: Tensor,
        metadata: Metadata,
        scale: float,
        *,
        causal: bool,
        max_keys: int,
    ) -> tuple[Tensor, Tensor]:
        """attnctl.kernels.latent.prefill.Attend, float32 in and out but for the query."""

    def merge(
        self, out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor, lse: Tensor
    ) -> None:
        """attnctl.ops.merge_states into out and lse, which may be one of the inputs."""


class IndexerKernels(Protocol):
    """As LatentKernels, for the indexer."""

    name: str

    def logits(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        """The context of each sequence's rows of out [T, longest context] float32; no more."""

    def select(
        self,
        query: Tensor,
        weights: Tensor,
        index_cache: Tensor,
        metadata: Metadata,
        params: Indexing,
        out: Tensor,
    ) -> None:
        """Each sequence's rows of out [T, K] int32, its last dimension dense."""


def open_latent(host: Host) -> tuple[LatentKernels, Finding]:
    """The compiled kernels, or torch's with a finding that says why there is no compiler."""
    from attnctl.kernels.cpu.build import build_here
    from attnctl.kernels.cpu.build_tiles import build_tiles
    from attnctl.kernels.cpu.paged import SOURCE
    from attnctl.kernels.latent.plain import TorchLatent

    latent, paged = build_here(host, LATENT_SOURCE), build_tiles(host, SOURCE)
    if latent.path is None or paged.path is None:
        return TorchLatent(), latent.finding if latent.path is None else paged.finding
    from attnctl.kernels.cpu.latent_call import NativeLatent

    return NativeLatent(latent.path, paged.path), latent.finding


def open_indexer(host: Host) -> tuple[IndexerKernels, Finding]:
    """As open_latent, for the indexer."""
    from attnctl.kernels.cpu.build import build_here
    from attnctl.kernels.latent.plain_indexer import TorchIndexer

    built = build_here(host, INDEXER_SOURCE)
    if built.path is None:
        return TorchIndexer(), built.finding
    from attnctl.kernels.cpu.indexer_call import NativeIndexer

    return NativeIndexer(built.path), built.finding
