"""The indexer: index queries of DeepSeek V3.2 over a cache of index keys."""

from __future__ import annotations

import torch
from gpu_times import GPU, compile_all, graph_ms
from mla_batches import PAGE, drawn, error_of, launch_all, metadata_of

from attnctl.kernels.triton.latent.indexer import logits_launch
from attnctl.kernels.triton.latent.pick import pick_launches
from attnctl.ops.indexer import Indexing, key_planes, write_index_keys

TOPK = 2048


class Asking:
    """Index queries of DeepSeek V3.2 over a cache of index keys."""

    def __init__(self, sequences, length, queries):
        pages = sequences * length // PAGE
        self.cache = torch.zeros(pages, PAGE, 132, device=GPU, dtype=torch.uint8)
        self.params = Indexing(topk=TOPK, scale=(64 * 128) ** -0.5)
        for first in range(0, pages * PAGE, 2**20):
            last = min(first + 2**20, pages * PAGE)
            slots = torch.arange(first, last, device=GPU)
            write_index_keys(drawn(last - first, 128), self.cache, slots, self.params)
        table = torch.randperm(pages, device=GPU).int().view(sequences, -1)
        self.metadata = metadata_of(sequences, length, table, queries)
        tokens = sequences * queries
        self.query = drawn(tokens, 64, 128).to(torch.float8_e4m3fn)
        self.weights = torch.randn(tokens, 64, device=GPU)
        self.logits = torch.empty(tokens, length, device=GPU)
        self.picks = torch.full((tokens, TOPK), -2, device=GPU, dtype=torch.int32)
        self.sequences, self.length, self.queries = sequences, length, queries

    def launches(self, shape=None, cut=None):
        logits = logits_launch(
            self.query, self.weights, self.cache, self.metadata, self.params, self.logits,
            shape=shape,
        )  # fmt: skip
        pick = pick_launches(self.logits, self.metadata, self.params.topk, self.picks, cut=cut)
        return [logits, *pick]

    def wanted(self, token):
        """A token's logits in float64, and how many it sees."""
        b, index = divmod(token, self.queries)
        seen = self.length - self.queries + index + 1
        keys, scales = key_planes(self.cache)
        pages = self.metadata.block_table[b].long()
        rows = keys.view(torch.uint8)[pages].view(keys.dtype).double() * scales[pages].double()
        rows = rows.flatten(0, 1)[:seen]
        products = (self.query[token].double() @ rows.t()).relu()
        return self.weights[token].double() @ products * self.params.scale

    def error(self):
        """The largest of some tokens' logits' errors, and picks that differ from a sort of ours."""
        self.logits.fill_(torch.nan)
        self.picks.fill_(-2)
        launch_all(self.launches())
        worst, differ = 0.0, 0
        tokens = self.query.shape[0]
        for token in sorted({0, 1 % tokens, tokens // 2, tokens - 1}):
            wanted = self.wanted(token)
            ours = self.logits[token, : wanted.numel()]
            error = error_of(ours, wanted)
            worst = error if error != error else max(worst, error)
            taken = min(self.params.topk, wanted.numel())
            picked = ours.topk(taken).indices.sort().values
            differ += int((self.picks[token, :taken] != picked.int()).sum())
            differ += int((self.picks[token, taken:] != -1).sum())
        return worst, differ

    def torch_call(self):
        keys, scales = key_planes(self.cache)
        table = self.metadata.block_table.long()
        query = self.query.to(torch.bfloat16).view(self.sequences, self.queries, 64, 128)
        weights = self.weights.view(self.sequences, self.queries, 64)
        ends = torch.arange(self.length - self.queries, self.length, device=GPU)
        hidden = torch.arange(self.length, device=GPU)[None] > ends[:, None]
        topk = min(self.params.topk, self.length)
        as_bytes = keys.view(torch.uint8)

        def call():
            rows = as_bytes[table].view(keys.dtype).to(torch.bfloat16)
            rows = (rows * scales[table].bfloat16()).flatten(1, 2)
            found = []
            # some query tokens at a time, or the products would not fit
            step = max(1, 2**28 // (self.sequences * self.length * 64) * 4)
            for first in range(0, self.queries, step):
                part = query[:, first : first + step].flatten(1, 2)
                products = (part @ rows.transpose(1, 2)).relu_()
                products = products.view(self.sequences, -1, 64, self.length)
                logits = torch.einsum(
                    "bqh,bqhs->bqs", weights[:, first : first + step].bfloat16(), products
                )
                logits.masked_fill_(hidden[first : first + step], -torch.inf)
                found.append(logits.topk(topk, -1).indices)
            return found

        return call


ASKED = ((64, 65536, 1), (64, 8192, 1), (1, 65536, 1), (16, 16384, 2), (1, 4096, 4096),
         (1, 32768, 1024), (8, 2048, 512))  # fmt: skip


def indexer(found):
    for sequences, length, queries in ASKED:
        asking = Asking(sequences, length, queries)
        launches = asking.launches()
        compile_all(launches)
        seen = sequences * (queries * length - queries * (queries - 1) // 2)
        error, differ = asking.error()
        values = {
            # launched anew each time: the counts of a pick start as zeros
            "ours": graph_ms([lambda a=asking: launch_all(a.launches())]),
            "floor": found.floor_ms(sequences * length * 132 + 4 * seen, 2 * seen * 64 * 128),
            "error": error,
            "differ": differ,
            "logits": graph_ms([lambda w=launches[:1]: launch_all(w)]),
            "pick": graph_ms([lambda a=asking: launch_all(a.launches()[1:])]),
            "torch": graph_ms([asking.torch_call()], replays=3),
        }
        found.add("indexer", f"B{sequences} S{length} q{queries}", **values)
        del asking, launches
        torch.cuda.empty_cache()
