"""The shapes of benchmarks/mla_cpu.py, and each as torch would compute it."""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec
import torch
from mla_torch import (
    FP8,
    INDEXING,
    NOPE,
    PAGE,
    PARAMS,
    RANK,
    ROPE,
    V,
    dense_torch,
    future,
    index_torch,
    sparse_torch,
    uncompressed_sdpa,
    uncompressed_torch,
)
from torch import Tensor

from attnctl.latent_runtime import packed_batch
from attnctl.ops.indexer import index_cache_shape, write_index_keys
from attnctl.ops.packed_rows import pack_rows
from attnctl.runtime import Metadata, open_backend

Rivals = dict[str, Callable[[], Tensor]]


class Problem(msgspec.Struct, kw_only=True):
    """ours and eager compute the same; more: other ways of torch. flops: of the products."""

    name: str
    flops: float
    ours: Callable[[], Tensor]
    function: Callable[..., Tensor]
    arguments: tuple[object, ...]
    more: Rivals = {}

    def rivals(self) -> Rivals:
        eager = functools.partial(self.function, *self.arguments)
        return {"ours": self.ours, "eager": eager, **self.more}

    def compiled(self) -> Callable[[], Tensor]:
        function = torch.compile(self.function, dynamic=False)
        return lambda: function(*self.arguments)


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """B sequences of S context tokens, the last `queries` of which are this batch's."""

    kind: str
    batch: int
    context: int
    queries: int = 1
    heads: int = 16
    cache: str = "bfloat16"

    @property
    def name(self) -> str:
        causal = "prefill" if self.queries > 1 else "decode"
        text = f"{self.kind} {causal} B={self.batch} S={self.context}"
        if self.queries > 1:
            text += f" Q={self.queries}"
        return f"{text} H={self.heads} {self.cache}"

    @property
    def pairs(self) -> float:
        """Query tokens times what each sees."""
        q, s = self.queries, self.context
        return self.batch * (q * s - q * (q - 1) / 2)

    def build(self) -> Problem:
        makers = {"dense": dense, "uncompressed": uncompressed, "sparse": sparse, "index": index}
        return makers[self.kind](self)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch_of(s: Shape) -> Metadata:
    """The batch, its pages in random order."""
    pages = -(-s.context // PAGE)
    order = torch.randperm(s.batch * pages, generator=torch.Generator().manual_seed(1))
    tokens = s.batch * s.queries
    return packed_batch(
        torch.arange(0, tokens + 1, s.queries),
        torch.full((s.batch,), s.context),
        order.view(s.batch, pages),
        torch.zeros(0),
        max_query_len=s.queries,
        max_seq_len=s.context,
    )


def cache_of(s: Shape) -> Tensor:
    pages = s.batch * -(-s.context // PAGE)
    rows = drawn(pages * PAGE, RANK + ROPE)
    if s.cache == "packed":
        stored = pack_rows(rows[:, :RANK], rows[:, RANK:])
    else:
        stored = rows.to(FP8 if s.cache == "fp8" else getattr(torch, s.cache))
    return stored.unflatten(0, (pages, PAGE))


def query_of(s: Shape, width: int) -> Tensor:
    dtype = torch.float32 if s.cache == "float32" else torch.bfloat16
    return drawn(s.batch * s.queries, s.heads, width, seed=2).to(dtype)


def dense(s: Shape) -> Problem:
    backend, metadata = open_backend("CPU_MLA"), batch_of(s)
    cache, query = cache_of(s), query_of(s, RANK + ROPE)
    table = metadata.block_table.long()
    hidden = future(s.queries, s.context) if s.queries > 1 else None
    out = torch.empty(*query.shape[:2], RANK, dtype=query.dtype)
    return Problem(
        name=s.name,
        flops=2 * s.pairs * s.heads * (2 * RANK + ROPE),
        ours=lambda: backend.forward(query, cache, metadata, PARAMS, out),
        function=dense_torch,
        arguments=(query, cache, table, hidden),
    )


def uncompressed(s: Shape) -> Problem:
    backend, metadata = open_backend("CPU_MLA"), batch_of(s)
    cache, query = cache_of(s), query_of(s, NOPE + ROPE)
    w_uk, w_uv = (drawn(s.heads, n, RANK, seed=n).to(query.dtype) / 16 for n in (NOPE, V))
    hidden = future(s.queries, s.context)
    arguments = (query, cache, metadata.block_table.long(), hidden, w_uk, w_uv)
    made = 2 * s.batch * s.context * s.heads * RANK * (NOPE + V)
    return Problem(
        name=s.name,
        flops=2 * s.pairs * s.heads * (NOPE + ROPE + V) + made,
        ours=lambda: backend.prefill(query, cache, metadata, PARAMS, w_uk, w_uv),
        function=uncompressed_torch,
        arguments=arguments,
        more={"sdpa": functools.partial(uncompressed_sdpa, *arguments)},
    )


def sparse(s: Shape) -> Problem:
    """Each query token names 2048 rows of the whole cache, some places -1."""
    backend, metadata = open_backend("CPU_MLA_SPARSE"), batch_of(s)
    cache, query = cache_of(s), query_of(s, RANK + ROPE)
    total, generator = cache.shape[0] * PAGE, torch.Generator().manual_seed(3)
    slots = torch.randint(0, total, (query.shape[0], INDEXING.topk), generator=generator).int()
    slots[:, ::97] = -1
    named = float((slots >= 0).sum())
    out = torch.empty(*query.shape[:2], RANK, dtype=query.dtype)
    return Problem(
        name=s.name,
        flops=2 * named * s.heads * (2 * RANK + ROPE),
        ours=lambda: backend.forward(query, cache, metadata, slots, PARAMS, out),
        function=sparse_torch,
        arguments=(query, cache, slots),
    )


def index(s: Shape) -> Problem:
    backend, metadata = open_backend("CPU_MLA_SPARSE"), batch_of(s)
    pages = metadata.block_table.numel()
    cache = torch.zeros(index_cache_shape(pages, PAGE, 128), dtype=torch.uint8)
    write_index_keys(drawn(pages * PAGE, 128), cache, torch.arange(pages * PAGE), INDEXING)
    query, weights = query_of(s, 128), drawn(s.batch * s.queries, s.heads, seed=4)
    hidden = future(s.queries, s.context) if s.queries > 1 else None
    return Problem(
        name=s.name,
        flops=2 * s.pairs * s.heads * 128,
        ours=lambda: backend.select_tokens(query, weights, cache, metadata, INDEXING),
        function=index_torch,
        arguments=(query, weights, cache, metadata.block_table.long(), hidden),
    )


PROBLEMS = (
    *(
        Shape(kind="dense", batch=b, context=c, heads=h)
        for h in (16, 128)
        for b, c in ((1, 512), (1, 16384), (4, 4096), (16, 2048), (64, 512))
    ),
    Shape(kind="dense", batch=64, context=2048),
    Shape(kind="dense", batch=16, context=2048, cache="float32"),
    Shape(kind="dense", batch=16, context=2048, cache="fp8"),
    Shape(kind="dense", batch=16, context=2048, heads=128, cache="fp8"),
    Shape(kind="dense", batch=1, context=1024, queries=1024),
    Shape(kind="dense", batch=1, context=8192, queries=64),
    Shape(kind="dense", batch=1, context=512, queries=512, heads=128),
    Shape(kind="uncompressed", batch=1, context=512, queries=512),
    Shape(kind="uncompressed", batch=1, context=2048, queries=2048),
    Shape(kind="uncompressed", batch=4, context=512, queries=512),
    Shape(kind="uncompressed", batch=1, context=4096, queries=256),
    Shape(kind="uncompressed", batch=1, context=512, queries=512, heads=128),
    Shape(kind="uncompressed", batch=1, context=1024, queries=1024, cache="float32"),
    *(
        Shape(kind="sparse", batch=b, context=4096, heads=h, cache=cache)
        for h in (16, 128)
        for b, cache in ((1, "bfloat16"), (8, "bfloat16"), (8, "packed"))
    ),
    Shape(kind="sparse", batch=64, context=2048),
    Shape(kind="sparse", batch=1, context=16384),
    Shape(kind="sparse", batch=1, context=8192, queries=64),
    *(
        Shape(kind="index", batch=b, context=c, heads=64)
        for b, c in ((1, 2048), (1, 16384), (16, 4096), (64, 2048))
    ),
    Shape(kind="index", batch=1, context=1024, queries=1024, heads=64),
    Shape(kind="index", batch=1, context=4096, queries=128, heads=64),
)
