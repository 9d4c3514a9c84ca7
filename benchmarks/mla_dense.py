"""Dense latent decoding: one query token a sequence, or several."""

from __future__ import annotations

from itertools import product

import torch
from gpu_times import compile_all, graph_ms
from mla_batches import (
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

from attnctl.kernels.triton.latent.call import decode_launches

DENSE = tuple(product((1, 16, 64, 128), (1024, 4096, 16384, 65536)))


def dense_work(pool, sequences, length, heads, make, queries=1):
    """The launches of every input set."""
    tables = pool.tables(sequences, length)
    tokens = sequences * queries
    query, out = drawn(tokens, heads, WIDTH), poisoned(tokens, heads, RANK)
    work = [
        make(query, pool.cache, metadata_of(sequences, length, t, queries), out) for t in tables
    ]
    return work, query, out, tables


def dense_error(pool, work, query, out, tables, length, queries=1):
    """The larger error of the first and the last query token."""
    launch_all(work[-1])
    worst = 0.0
    for t in {0, query.shape[0] - 1}:
        seen = length - queries + t % queries + 1
        rows = pool.cache[tables[-1][t // queries].long()].flatten(0, 1)[:seen]
        error = error_of(out[t], exact(query[t], rows))
        worst = error if error != error else max(worst, error)
    return worst


def dense_floor(found, sequences, length, heads, queries=1):
    tokens = sequences * length
    operations = 2 * tokens * queries * heads * (WIDTH + RANK)
    return found.floor_ms(tokens * WIDTH * 2, operations)


def default_dense(query, cache, metadata, out):
    return decode_launches(query, cache, metadata, PARAMS, out, None)


def dense(found, pool, shapes=DENSE, all_heads=(16, 128)):
    flashmla = load_flashmla()
    for heads, (sequences, length) in product(all_heads, shapes):
        work = dense_work(pool, sequences, length, heads, default_dense)
        compile_all(work[0][0])
        values = {
            "ours": graph_ms([lambda w=w: launch_all(w) for w in work[0]]),
            "floor": dense_floor(found, sequences, length, heads),
            "error": dense_error(pool, *work, length),
        }
        if flashmla is not None:
            calls = flashmla.dense(work[1], pool.cache, work[3], length, PARAMS.scale)
            values["flashmla"] = calls if isinstance(calls, str) else graph_ms(calls)
        if sequences * length <= 2**20:
            values["torch"] = graph_ms(torch_dense(pool, work[1], work[3]))
        found.add("dense", f"B{sequences} S{length} h{heads}", **values, plan=plan_of(work[0][0]))


def queries(found, pool):
    """Several query tokens a sequence, as speculative decoding has them."""
    for heads, (sequences, length, count) in product(
        (16, 128), ((16, 16384, 2), (64, 4096, 4), (1, 65536, 4))
    ):
        work = dense_work(pool, sequences, length, heads, default_dense, count)
        compile_all(work[0][0])
        values = {
            "ours": graph_ms([lambda w=w: launch_all(w) for w in work[0]]),
            "floor": dense_floor(found, sequences, length, heads, count),
            "error": dense_error(pool, *work, length, count),
        }
        shape = f"B{sequences} S{length} q{count} h{heads}"
        found.add("queries", shape, **values, plan=plan_of(work[0][0]))


def torch_dense(pool, query, tables):
    """Attention as two batched products over gathered rows."""

    def call(table):
        rows = pool.cache[table].flatten(1, 2)
        weights = torch.softmax(query @ rows.transpose(1, 2) * PARAMS.scale, -1)
        return weights @ rows[..., :RANK]

    return [lambda t=t: call(t) for t in [table.long() for table in tables]]
