"""Batches of paged attention for the benchmarks of a GPU."""

from __future__ import annotations

import math

import torch
from gpu_times import GPU

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.paged import paged_attention
from attnctl.kernels.triton.paged.call import shape_of
from attnctl.kernels.triton.paged.launches import launches
from attnctl.kernels.triton.paged.plan import plan
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops.paged import Paged

HEADS, KV_HEADS, WIDTH = 32, 8, 128
WIDE = {"heads": 64, "kv_heads": 4, "width": 192, "value_width": 128}


class Batch:
    """A paged batch of B sequences of one length, pages in random order."""

    def __init__(
        self,
        sequences,
        length,
        queries,
        *,
        page=16,
        heads=HEADS,
        kv_heads=KV_HEADS,
        width=WIDTH,
        value_width=None,
        dtype=torch.bfloat16,
        cache=None,
    ):
        self.sequences, self.length, self.queries = sequences, length, queries
        value_width = value_width or width
        pages = math.ceil(length / page)
        total = sequences * pages
        make = {"device": GPU, "dtype": dtype}
        self.query = torch.randn(sequences * queries, heads, width, **make)
        self.out = torch.empty(sequences * queries, heads, value_width, **make)
        self.keys = torch.randn(total, page, kv_heads, width, **make)
        self.values = torch.randn(total, page, kv_heads, value_width, **make)
        if cache is not None:
            self.keys, self.values = self.keys.to(cache), self.values.to(cache)
        order = torch.randperm(total, device=GPU, dtype=torch.int32)
        self.table = order.view(sequences, pages)
        self.starts = torch.arange(
            0, (sequences + 1) * queries, queries, device=GPU, dtype=torch.int32
        )
        self.lengths = torch.full((sequences,), length, device=GPU, dtype=torch.int32)
        self.params = Paged(scale=width**-0.5)
        self.kept = Relaunches()
        seen = queries * length - queries * (queries - 1) / 2
        self.flops = 2 * sequences * heads * (width + value_width) * seen
        self.bytes = sequences * length * kv_heads * (width + value_width)
        self.bytes *= self.keys.itemsize

    @property
    def tensors(self):
        return self.query, self.keys, self.values, self.table, self.starts, self.lengths

    def ours(self, knobs=None):
        return paged_attention(
            *self.tensors,
            self.params,
            max_query_len=self.queries,
            max_seq_len=self.length,
            out=self.out,
            knobs=knobs,
            kept=self.kept,
        )

    def launches(self, knobs):
        query, keys, values, table, starts, lengths = self.tensors
        shape = shape_of(query, keys, values, lengths, self.queries, self.length)
        chosen = plan(shape, device_of(GPU), knobs)
        tensors = (query, keys, values, self.out, table, starts, lengths)
        return chosen, launches(tensors, self.params, shape, chosen)
