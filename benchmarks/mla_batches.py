"""Batches of latent attention for the benchmarks of a GPU, and what is exact for them."""

from __future__ import annotations

import torch
from gpu_times import GPU

from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

RANK, ROPE, PAGE = 512, 64, 64
WIDTH = RANK + ROPE
PARAMS = Latent(scale=192**-0.5, kv_lora_rank=RANK)
L2_BYTES = 160 * 2**20


class Pool:
    """Cached rows for every batch: pages of random numbers, dealt out anew each time."""

    def __init__(self, rows):
        self.cache = torch.empty(rows // PAGE, PAGE, WIDTH, device=GPU, dtype=torch.bfloat16)
        self.cache.normal_()

    def tables(self, sequences, length):
        """Block tables of input sets, as many as leave the L2 behind where the pool has them."""
        pages = length // PAGE
        wanted = sequences * pages
        sets = min(64, max(1, -(-L2_BYTES // (wanted * PAGE * WIDTH * 2))))
        sets = max(1, min(sets, self.cache.shape[0] // wanted))
        order = torch.randperm(self.cache.shape[0], device=GPU)[: sets * wanted]
        return list(order.int().view(sets, sequences, pages))


def metadata_of(sequences, length, table, queries=1):
    return Metadata(
        query_start_loc=torch.arange(0, (sequences + 1) * queries, queries, device=GPU).int(),
        seq_lens=torch.full((sequences,), length, device=GPU, dtype=torch.int32),
        block_table=table,
        slot_mapping=torch.zeros(0, device=GPU, dtype=torch.int64),
        max_query_len=queries,
        max_seq_len=length,
    )


def drawn(*shape):
    return torch.randn(*shape, device=GPU, dtype=torch.bfloat16)


def poisoned(*shape):
    return torch.full(shape, torch.nan, device=GPU, dtype=torch.bfloat16)


def launch_all(launches):
    for launch in launches:
        launch.kernel[launch.grid](*launch.arguments, **launch.constants)


def exact(query, rows):
    """Attention of one token's heads [H, 576] over rows [S, 576], in float64."""
    rows = rows.double()
    logits = query.double() @ rows.t() * PARAMS.scale
    return torch.softmax(logits, -1) @ rows[:, :RANK]


def error_of(out, wanted):
    """The relative error in the Frobenius norm; NaN where an element was not written."""
    return float((out.double() - wanted).norm() / wanted.norm())
