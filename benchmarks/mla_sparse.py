"""Sparse latent attention: query tokens with lists of slots, rows of bfloat16 and of bytes."""

from __future__ import annotations

from itertools import product

import torch
from gpu_times import GPU, compile_all, graph_ms, milliseconds
from mla_batches import (
    PAGE,
    PARAMS,
    RANK,
    WIDTH,
    drawn,
    error_of,
    exact,
    launch_all,
    metadata_of,
    poisoned,
)
from mla_rows import plan_of
from peers import load_flashmla

from attnctl.kernels.triton.latent.call import sparse_launches
from attnctl.ops.packed_rows import pack_rows, unpack_rows

SPARSE = ((1024, 8192), (64, 65536), (1, 65536), (16, 65536), (256, 65536))


class Listed:
    """Query tokens with lists of random slots in a cache, some input sets."""

    def __init__(self, tokens, rows, heads, topk=2048, packed=False):
        self.tokens, self.rows, self.heads, self.topk = tokens, rows, heads, topk
        plain = drawn(rows, WIDTH) * 0.5
        self.plain = plain
        self.cache = plain.view(-1, PAGE, WIDTH)
        if packed:
            self.cache = pack_rows(plain[:, :RANK], plain[:, RANK:]).view(-1, PAGE, 656)
            self.plain = unpack_rows(self.cache.flatten(0, 1), RANK)
        self.query = drawn(tokens, heads, WIDTH)
        self.out = poisoned(tokens, heads, RANK)
        sets = 1 if tokens >= 64 else min(8, max(2, 64 // tokens))
        noise = torch.rand(sets * tokens, rows, device=GPU) if rows <= 65536 else None
        self.slots = [
            one.int().contiguous() for one in noise.topk(topk, 1).indices.view(sets, tokens, topk)
        ]
        self.metadata = metadata_of(tokens, rows, torch.zeros(tokens, 1, device=GPU).int())

    def work(self, make):
        return [make(self.query, self.cache, s, self.metadata, self.out) for s in self.slots]

    def error(self, launches):
        self.out.fill_(torch.nan)
        launch_all(launches)
        some = torch.linspace(0, self.tokens - 1, min(self.tokens, 8)).long().tolist()
        wanted = [exact(self.query[t], self.plain[self.slots[-1][t].long()]) for t in some]
        return error_of(self.out[some], torch.stack(wanted))

    def floor(self, found):
        operations = 2 * self.tokens * self.heads * self.topk * (WIDTH + RANK)
        touched = min(self.rows, self.tokens * self.topk)
        return found.floor_ms(touched * self.cache.shape[2] * self.cache.itemsize, operations)

    def torch_calls(self):
        def call(slots):
            rows = self.cache.flatten(0, 1)[slots]
            weights = torch.softmax(self.query @ rows.transpose(1, 2) * PARAMS.scale, -1)
            return weights @ rows[..., :RANK]

        return [lambda s=s: call(s) for s in [slots.long() for slots in self.slots]]


def default_sparse(query, cache, slots, metadata, out):
    return sparse_launches(query, cache, slots, metadata, PARAMS, out, None)


def sparse(found):
    flashmla = load_flashmla()
    for heads, (tokens, rows) in product((16, 128), SPARSE):
        listed = Listed(tokens, rows, heads)
        work = listed.work(default_sparse)
        compile_all(work[0])
        values = {
            "ours": graph_ms([lambda w=w: launch_all(w) for w in work]),
            "floor": listed.floor(found),
            "error": listed.error(work[-1]),
        }
        if flashmla is not None:
            calls = flashmla.sparse(listed, PARAMS.scale)
            values["flashmla"] = calls if isinstance(calls, str) else graph_ms(calls)
            if not isinstance(calls, str):
                values["flashmla_events"] = milliseconds(calls[0], graph=False)
        if tokens <= 256:
            values["torch"] = graph_ms(listed.torch_calls())
        found.add("sparse", f"q{tokens} kv{rows} h{heads}", **values, plan=plan_of(work[0]))
        del listed, work


def packed(found):
    """Rows of 656 bytes, which FlashMLA's decoding kernel reads too."""
    flashmla = load_flashmla()
    for heads, (tokens, rows) in product((16, 128), SPARSE[:2]):
        listed = Listed(tokens, rows, heads, packed=True)
        work = listed.work(default_sparse)
        compile_all(work[0])
        ours = graph_ms([lambda w=w: launch_all(w) for w in work])
        error = listed.error(work[-1])
        floor = listed.floor(found)
        values = {"ours": ours, "floor": floor, "error": error}
        if flashmla is not None:
            calls = flashmla.packed(listed, PARAMS.scale)
            values["flashmla"] = calls if isinstance(calls, str) else graph_ms(calls)
        found.add("packed", f"q{tokens} kv{rows} h{heads}", **values, plan=plan_of(work[0]))
