"""Layers that share a batch, as a model calls a runtime: for what a call costs the host."""

from __future__ import annotations

from functools import partial

import torch
from paged_batches import Batch

from attnctl.backends.triton_mla.kernel import TritonMla
from attnctl.kernels.triton.latent.prefill_call import prefill_attend
from attnctl.kernels.triton.paged.runtime import TritonAttention
from attnctl.ops.mla import Latent

SHAPES = (
    (8, 1024, 1024),
    (1, 512, 512),
    (4, 8192, 512),
    (16, 1024, 1),
    (64, 2048, 1),
    (16, 8192, 4),
)
LAYERS = 32
GPU = torch.device("cuda", 0)


class Model:
    """Layers that share a batch, each with a packed cache of its own, as a runtime lays it out."""

    def __init__(self, sequences, length, queries, page=16, layers=LAYERS):
        self.batch = batch = Batch(sequences, length, queries, page=page)
        self.runtime = TritonAttention("TRITON_ATTN")
        shape = (batch.keys.shape[0], page, *batch.keys.shape[2:3], 256)
        self.caches = [torch.randn(shape, device=GPU, dtype=torch.bfloat16) for _ in range(layers)]
        self.metadata = self.bounded(length)

    def bounded(self, longest):
        batch = self.batch
        return self.runtime.build_metadata(
            batch.starts, batch.lengths, batch.table,
            torch.zeros(1, device=GPU, dtype=torch.int64),
            max_query_len=batch.queries, max_seq_len=longest,
        )  # fmt: skip

    def call(self, cache, metadata=None):
        batch = self.batch
        return self.runtime.forward(
            batch.query, cache, metadata or self.metadata, batch.params, batch.out
        )

    def writing(self, cache):
        """A call that stores the batch's new tokens."""
        batch = self.batch
        rows = batch.query.shape[0]
        tokens = torch.randn(2, rows, batch.keys.shape[2], 128, device=GPU, dtype=torch.bfloat16)
        metadata = self.runtime.build_metadata(
            batch.starts, batch.lengths, batch.table, torch.randperm(rows, device=GPU),
            max_query_len=batch.queries, max_seq_len=batch.length,
        )  # fmt: skip
        return lambda: self.runtime.write_cache(*tokens, cache, metadata, batch.params)


class LatentModel:
    """Layers of latent attention with 512 + 64 columns that share a batch of whole prompts."""

    params = Latent(scale=192**-0.5, kv_lora_rank=512)

    def __init__(self, sequences, length, heads, layers, queries=None):
        drawn = partial(torch.randn, device=GPU, dtype=torch.bfloat16)
        self.runtime, queries = TritonMla(), queries or length
        pages = -(-length // 64)
        self.caches = [drawn(sequences * pages, 64, 576) for _ in range(layers)]
        self.weights = drawn(heads, 128, 512), drawn(heads, 128, 512)
        self.query = drawn(sequences * queries, heads, 192)
        self.absorbed = drawn(sequences * queries, heads, 576)
        table = torch.randperm(sequences * pages, device=GPU).view(sequences, pages)
        starts = torch.arange(0, sequences * queries + 1, queries, device=GPU)
        self.metadata = self.runtime.build_metadata(
            starts, torch.full((sequences,), length, device=GPU), table, starts[:0],
            max_query_len=queries, max_seq_len=length,
        )  # fmt: skip

    def prefill(self, cache):
        given = (self.query, cache, self.metadata, self.params, *self.weights)
        return self.runtime.prefill(*given)

    def forward(self, cache):
        return self.runtime.forward(self.absorbed, cache, self.metadata, self.params)


def attending(prompt):
    return lambda: prefill_attend(
        prompt.query, prompt.keys, prompt.values, prompt.starts, prompt.metadata, prompt.scale,
        causal=True, max_keys=prompt.length, kept=prompt.kept,
    )  # fmt: skip
