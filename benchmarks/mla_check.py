"""Batches of odd lengths, heads and lists, each against float64."""

from __future__ import annotations

import os
from itertools import product

import torch
from gpu_times import GPU, compile_all
from mla_batches import (
    PAGE,
    PARAMS,
    RANK,
    WIDTH,
    Pool,
    drawn,
    error_of,
    exact,
    launch_all,
    metadata_of,
    poisoned,
)
from mla_sparse import Listed, default_sparse

from attnctl.kernels.triton.latent.call import decode_launches


def check():
    """Odd lengths, heads and lists: every batch against float64. Gives the failures.

    CHECK_HEADS names some numbers of heads, so that several processes share the compiling.
    """
    pool = Pool(2**18)
    wanted = [int(h) for h in os.environ.get("CHECK_HEADS", "1,16,20,64,128").split(",")]
    batches = [
        *(
            Odd(pool, heads, length, sequences, queries)
            for heads, length, sequences, queries in product(
                wanted, (1, 63, 64, 65, 2047, 2048, 2049), (1, 5), (1, 3)
            )
            if queries <= length
        ),
        *(
            Holes(tokens, 4096, heads, topk, packed_rows)
            for heads, tokens, topk, packed_rows in product(
                (16, 128), (1, 7), (33, 2047, 2048, 2049), (False, True)
            )
            if heads in wanted
        ),
    ]
    compile_all([launch for batch in batches for launch in batch.launches])
    failures = [text for batch in batches for text in batch.failures()]
    print(f"check: {len(failures)} failures in {len(batches)} batches", flush=True)
    for failure in failures[:20]:
        print("  ", failure, flush=True)
    return failures


class Odd:
    """A dense batch of any length, with the log-sum-exp."""

    def __init__(self, pool, heads, length, sequences, queries):
        self.name = f"dense h{heads} S{length} B{sequences} q{queries}"
        self.pool, self.length, self.queries = pool, length, queries
        pages, tokens = -(-length // PAGE), sequences * queries
        table = torch.randperm(pool.cache.shape[0], device=GPU)[: sequences * pages].int()
        self.table = table.view(sequences, pages)
        self.query, self.out = drawn(tokens, heads, WIDTH), poisoned(tokens, heads, RANK)
        self.lse = torch.full((tokens, heads), torch.nan, device=GPU)
        metadata = metadata_of(sequences, length, self.table, queries)
        self.launches = decode_launches(
            self.query, pool.cache, metadata, PARAMS, self.out, self.lse
        )

    def failures(self):
        launch_all(self.launches)
        for t in {0, self.query.shape[0] - 1}:
            seen = self.length - self.queries + t % self.queries + 1
            pages = self.table[t // self.queries].long()
            rows = self.pool.cache[pages].flatten(0, 1)[:seen]
            error = error_of(self.out[t], exact(self.query[t], rows))
            logits = self.query[t].double() @ rows.double().t() * PARAMS.scale
            apart = float((self.lse[t].double() - logits.logsumexp(-1)).abs().max())
            if not (error < 0.01 and apart < 0.01):
                yield f"{self.name} t{t}: {error:.2e}, lse {apart:.2e}"


class Holes(Listed):
    """Lists with places of no token and slots beyond the cache."""

    def __init__(self, tokens, rows, heads, topk, packed):
        super().__init__(tokens, rows, heads, topk, packed)
        self.name = f"sparse h{heads} T{tokens} K{topk} packed {packed}"
        for slots in self.slots:
            slots[:, 3::5] = -1
            slots[0, : topk // 2] = 2**31 - 1
        self.launches = self.work(default_sparse)[-1]

    def failures(self):
        launch_all(self.launches)
        for t in range(self.tokens):
            slots = self.slots[-1][t]
            named = slots[(slots >= 0) & (slots < self.rows)].long()
            error = error_of(self.out[t], exact(self.query[t], self.plain[named]))
            if not error < 0.01:
                yield f"{self.name} t{t}: {error:.2e}"
