"""Times latent attention in Triton on a GPU against FlashMLA, FlashAttention-3 and torch.

    python benchmarks/mla_gpu.py [check] [dense] [queries] [sparse] [packed] [indexer] [prefill]
                     [short] [sweep-dense] [sweep-sparse] [sweep-indexer] [sweep-prefill]

Every time has its error beside it: ours against the specification's mathematics in float64, on some
rows of the same batch. Times are medians of CUDA graphs that go through enough input sets to leave
the L2 behind; prefill is timed in graphs of one batch and by events with a flushed L2, the rivals
in turns, torch by the fastest of its backends. The floor is the larger of bytes over the measured
read bandwidth and operations over the measured matrix rate. With PEER naming a folder of unpacked
vLLM 0.33 wheels, FlashMLA and FlashAttention-3 are timed beside. With OUT, $OUT/mla_gpu.json,
rewritten after every row.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import torch
import triton
from peers import load_fa3_dense, load_flashmla
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.hopper_call import hopper_launches
from attnctl.kernels.triton.indexer import Asked, logits_launch
from attnctl.kernels.triton.latent_call import decode_launches, sparse_launches
from attnctl.kernels.triton.launch import Tiles
from attnctl.kernels.triton.mla_prefill import prefill_attend, prefill_launch
from attnctl.kernels.triton.pick import pick_launches
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops.indexer import Indexing, key_planes, write_index_keys
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import pack_rows, unpack_rows
from attnctl.runtime import Metadata

GPU = torch.device("cuda")
RANK, ROPE, PAGE = 512, 64, 64
WIDTH = RANK + ROPE
PARAMS = Latent(scale=192**-0.5, kv_lora_rank=RANK)
L2_BYTES = 160 * 2**20
DENSE = tuple(product((1, 16, 64, 128), (1024, 4096, 16384, 65536)))
SPARSE = ((1024, 8192), (64, 65536), (1, 65536), (16, 65536), (256, 65536))


# --- batches ---------------------------------------------------------------------------------


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


# --- times -----------------------------------------------------------------------------------


def graph_ms(calls, replays=7):
    """The median over replays of one graph of all calls, a call's share; or why it failed."""
    try:
        for call in calls[:2]:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        graph.replay()
        times = []
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / len(calls))
        return statistics.median(times)
    except Exception as error:  # what does not run here is a fact to report
        return f"{type(error).__name__}: {str(error)[:150]}"


def event_ms(call):
    try:
        call()
        torch.cuda.synchronize()
        return do_bench(call, warmup=10, rep=40, return_mode="median")
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"


def turns_ms(calls, rounds=15):
    """Median by name: calls in turns, so that all of them meet the same clock, the L2 flushed."""
    flush = torch.empty(2**26, device=GPU, dtype=torch.int32)
    marks = {name: [] for name in calls}
    for call in calls.values():
        call()
    for name, call in [*calls.items()] * rounds:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        call()
        end.record()
        marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {n: statistics.median(a.elapsed_time(b) for a, b in pairs) for n, pairs in marks.items()}


def compile_all(launches):
    """Compiles launches side by side: the constants decide what is compiled."""
    unique = {}
    for launch in launches:
        constants = str(sorted(launch.constants.items(), key=str))
        kinds = str([type(x).__name__ if x is not None else x for x in launch.arguments])
        unique[launch.kernel.__name__, constants, kinds] = launch

    def compile_one(launch):
        try:
            launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.constants)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
        return None

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(compile_one, unique.values()))


class Rows:
    """The results, printed and written as they come."""

    def __init__(self):
        self.rows = []
        self.read, self.matrix = ceilings()

    def floor_ms(self, read_bytes, operations):
        return 1e3 * max(read_bytes / self.read, operations / self.matrix)

    def add(self, group, shape, **values):
        row = {"group": group, "shape": shape, **values}
        self.rows.append(
            {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
        )
        ours, parts = values.get("ours"), [f"{group:8s} {shape:26s}"]
        for name, value in values.items():
            if isinstance(value, float):
                parts.append(f"{name} {value:.4g}")
                if name not in ("ours", "error") and isinstance(ours, float):
                    parts[-1] += f" ({value / ours:.2f}x)"
            else:
                parts.append(f"{name}: {value}")
        print(" ".join(parts), flush=True)
        self.save()

    def save(self):
        if "OUT" in os.environ:
            text = json.dumps(self.rows, indent=0)
            Path(os.environ["OUT"], f"mla_gpu{os.environ.get('TAG', '')}.json").write_text(text)


def ceilings():
    """Bytes and operations a second of this card: a read of 2 GiB, a product of 8192."""
    source = torch.randn(2**30, device=GPU, dtype=torch.bfloat16)
    seconds = do_bench(lambda: source.view(torch.int16).amax(), return_mode="median") / 1e3
    read = source.nbytes / seconds
    one, other = drawn(8192, 8192), drawn(8192, 8192)
    matrix = 2 * 8192**3 / (do_bench(lambda: one @ other, return_mode="median") / 1e3)
    print(f"read {read / 1e12:.2f} TB/s, matrix {matrix / 1e12:.0f} TFLOP/s", flush=True)
    return read, matrix


# --- dense decode ----------------------------------------------------------------------------


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


def plan_of(launches):
    c = launches[0].constants
    return (
        f"{launches[0].kernel.__name__} {c.get('BLOCK_M', 64)}x{c.get('TILE', 64)} "
        f"w{c['num_warps']} s{c.get('num_stages', 2)} grid{launches[0].grid}"
    )


# --- sparse ----------------------------------------------------------------------------------


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
                values["flashmla_events"] = event_ms(calls[0])
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


# --- the indexer -----------------------------------------------------------------------------


class Asking:
    """Index queries of DeepSeek V3.2 over a cache of index keys."""

    def __init__(self, sequences, length, queries, topk=2048):
        pages = sequences * length // PAGE
        self.cache = torch.zeros(pages, PAGE, 132, device=GPU, dtype=torch.uint8)
        self.params = Indexing(topk=topk, scale=(64 * 128) ** -0.5)
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
        self.picks = torch.full((tokens, topk), -2, device=GPU, dtype=torch.int32)
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


# --- prefill, uncompressed -------------------------------------------------------------------


class Prompt:
    """Packed queries, keys and values of DeepSeek's uncompressed form."""

    def __init__(self, sequences, length, heads=128):
        self.sequences, self.length, self.heads = sequences, length, heads
        tokens = sequences * length
        self.query, self.keys = drawn(tokens, heads, 192), drawn(tokens, heads, 192)
        self.values = drawn(tokens, heads, 128)
        self.out = poisoned(tokens, heads, 128)
        self.lse = torch.empty(tokens, heads, device=GPU)
        self.starts = torch.arange(0, tokens + 1, length, device=GPU).int()
        self.metadata = Metadata(
            query_start_loc=self.starts,
            seq_lens=torch.full((sequences,), length, device=GPU, dtype=torch.int32),
            block_table=self.starts[None],
            slot_mapping=self.starts,
            max_query_len=length,
            max_seq_len=length,
        )
        self.scale = 192**-0.5
        self.flops = sequences * heads * length * length * (192 + 128)
        self.bytes = tokens * heads * 2 * (192 + 192 + 128 + 128)
        self.kept = Relaunches()

    def attend(self):
        """As a runtime's layers launch it."""
        prefill_attend(
            self.query, self.keys, self.values, self.starts, self.metadata, self.scale,
            causal=True, max_keys=self.length, kept=self.kept,
        )  # fmt: skip

    def launch(self, tiles=None, **more):
        factor = self.scale * 1.4426950408889634
        return prefill_launch(
            self.query, self.keys, self.values, self.starts, self.metadata, factor, True,
            self.out, self.lse, tiles=tiles, **more,
        )  # fmt: skip

    def error(self, launch):
        self.out.fill_(torch.nan)
        launch_all([launch])
        worst = 0.0
        for token in (0, 1, self.length // 2 + 3, self.sequences * self.length - 1):
            first = token // self.length * self.length
            for head in (0, self.heads - 1):
                keys = self.keys[first : token + 1, head].double()
                logits = keys @ self.query[token, head].double() * self.scale
                values = self.values[first : token + 1, head].double()
                error = error_of(self.out[token, head], torch.softmax(logits, 0) @ values)
                worst = error if error != error else max(worst, error)
        return worst

    def sdpa(self):
        """torch's attention by the fastest of its backends in a graph, its own choice if near."""
        calls = {backend: self.sdpa_by(backend) for backend in (None, *BACKENDS)}
        times = {backend: graph_ms([call] * 4, replays=3) for backend, call in calls.items()}
        times = {backend: ms for backend, ms in times.items() if isinstance(ms, float)}
        best = min(times, key=times.__getitem__)
        # naming a backend costs the host time
        return calls[None if times[None] < 1.01 * times[best] else best]

    def sdpa_by(self, backend):
        shape = (self.sequences, self.length, self.heads)
        q, k, v = (
            x.view(*shape, x.shape[2]).transpose(1, 2) for x in (self.query, self.keys, self.values)
        )

        def plain():
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=self.scale
            )

        def named():
            with sdpa_kernel(backend):
                return plain()

        return plain if backend is None else named


BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION)
PROMPTS = (
    *((1, 4096, 128), (1, 8192, 128), (1, 16384, 32), (8, 1024, 128), (4, 2048, 128)),
    *((16, 512, 128), (32, 256, 128), (64, 128, 128), (1, 8192, 16), (8, 1024, 16), (16, 512, 16)),
)
SHORT = tuple(product((8, 24, 64), (17, 64, 100, 128, 200, 256, 300), (128, 16)))


def short(found):
    """Prompts of one to three tiles, which are bound by memory and by what a unit costs."""
    prefill(found, SHORT, "short")


def prefill(found, shapes=PROMPTS, group="prefill"):
    fa3 = load_fa3_dense()
    for sequences, length, heads in shapes:
        prompt = Prompt(sequences, length, heads)
        launch, portable = prompt.launch(), prompt.launch(groups=False)
        compile_all([launch, *([portable] if group == "prefill" else [])])
        calls = {"ours": prompt.attend, "sdpa": prompt.sdpa()}
        if fa3 is not None:
            calls["fa3"] = fa3(prompt)
        values = {"ours": 0.0, "floor": found.floor_ms(prompt.bytes, prompt.flops)}
        values |= {"error": prompt.error(launch)}
        others = {"portable": lambda w=portable: launch_all([w])} if group == "prefill" else {}
        values |= turns_ms({**calls, **others})
        values |= {f"{name} graph": graph_ms([call] * 4) for name, call in calls.items()}
        plan = f"{launch.kernel.__name__} w{launch.constants['num_warps']}"
        found.add(group, f"B{sequences} S{length} h{heads}", **values, plan=plan)
        del prompt, launch, portable, calls
        torch.cuda.empty_cache()


# --- sweeps ----------------------------------------------------------------------------------


def sweep(found, group, shape, choices, run_of, error_of_choice, floor):
    """The time of every choice, the error beside; the best ones are printed."""
    compile_all([launch for launches in choices.values() for launch in launches])
    times, errors = {}, {}
    for label, launches in choices.items():
        times[label] = graph_ms(run_of(launches), replays=5)
        errors[label] = float("nan")
        if isinstance(times[label], float):
            errors[label] = error_of_choice(launches)
    good = sorted((t, n) for n, t in times.items() if isinstance(t, float) and errors[n] < 0.01)
    best = "; ".join(f"{n} {t:.4f} e{errors[n]:.1e}" for t, n in good[:5])
    bad = [n for n in times if n not in {n for _, n in good}]
    found.rows.append({"group": f"sweep {group}", "shape": shape, "floor": floor, "times": times})
    found.save()
    print(f"sweep {group} {shape} floor {floor:.4f}: {best}", flush=True)
    for label in bad:
        print("   bad", label, times[label], errors.get(label), flush=True)


PORTABLE = [
    Tiles(rows, keys, warps, stages)
    for rows, keys, warps, stages in (
        (16, 16, 4, 3), (16, 32, 4, 2), (16, 32, 4, 3), (16, 64, 4, 2), (16, 32, 8, 3),
        (16, 64, 8, 2), (64, 32, 8, 2), (64, 64, 8, 1), (64, 64, 8, 2), (64, 16, 8, 3),
    )
]  # fmt: skip
HOPPER = [True, False]
"""By boxes, and by pointers."""


def kinds(heads):
    """The Hopper kernel's tiles and those of the portable one that suit a number of heads."""
    portable = [("p", tiles) for tiles in PORTABLE if (tiles.rows == 16) is (heads == 16)]
    return [*(("h", tiles) for tiles in HOPPER), *portable]


def named(kind, tiles, segments):
    return f"{kind} {'x'.join(map(str, parts_of(tiles)))} n{segments}"


def parts_of(tiles):
    if isinstance(tiles, bool):
        return ("boxes" if tiles else "pointers",)
    return tiles.rows, tiles.keys, tiles.warps, tiles.stages


def sweep_dense(found, pool, shapes=((1, 65536), (16, 16384), (64, 4096), (128, 16384))):
    device = device_of(GPU)
    for heads, (sequences, length) in product((16, 128), shapes):
        tables = pool.tables(sequences, length)
        query, out = drawn(sequences, heads, WIDTH), poisoned(sequences, heads, RANK)
        choices, sets = {}, {}
        for (kind, tiles), segments in product(kinds(heads), (1, 2, 4, 8, 16, 32, 64)):
            programs = sequences * -(-heads // getattr(tiles, "rows", 64)) * segments
            if not 100 <= programs <= 700 and segments > 1:
                continue
            work = []
            for table in tables:
                rest = (metadata_of(sequences, length, table), PARAMS, out, None, device)
                if kind == "h":
                    made = hopper_launches(query, pool.cache, None, *rest, segments, tiles)
                else:
                    made = decode_launches(query, pool.cache, *rest, tiles, segments)
                work.append(made)
            choices[named(kind, tiles, segments)] = work[0]
            sets[id(work[0])] = work

        def run_of(launches, sets=sets):
            return [lambda w=w: launch_all(w) for w in sets[id(launches)]]

        def error_of_choice(launches, sets=sets, rest=(query, out, tables), length=length):
            rest[1].fill_(torch.nan)
            return dense_error(pool, sets[id(launches)], *rest, length)

        floor = dense_floor(found, sequences, length, heads)
        name = f"B{sequences} S{length} h{heads}"
        sweep(found, "dense", name, choices, run_of, error_of_choice, floor)


def sweep_sparse(found, shapes=((1024, 8192), (64, 65536), (1, 65536))):
    device = device_of(GPU)
    for heads, (tokens, rows) in product((16, 128), shapes):
        listed = Listed(tokens, rows, heads)
        choices = {}
        for (kind, tiles), segments in product(kinds(heads), (1, 2, 4, 8, 16, 32)):
            programs = tokens * -(-heads // getattr(tiles, "rows", 64)) * segments
            if not 100 <= programs <= 700 and segments > 1:
                continue
            if kind == "h" and tiles:
                continue
            make = hopper_launches if kind == "h" else sparse_launches
            choices[named(kind, tiles, segments)] = make(
                listed.query, listed.cache, listed.slots[-1], listed.metadata, PARAMS, listed.out,
                None, device, *((segments,) if kind == "h" else (tiles, segments)),
            )  # fmt: skip
        name, floor = f"q{tokens} kv{rows} h{heads}", listed.floor(found)
        sweep(found, "sparse", name, choices, once, listed.error, floor)


def once(launches):
    return [lambda: launch_all(launches)]


LOGITS = [
    Asked(tokens, keys, tiles, warps, stages)
    for tokens, keys, tiles, warps, stages in (
        (1, 64, 8, 4, 2), (1, 128, 8, 4, 2), (1, 128, 8, 4, 3), (1, 128, 16, 4, 3),
        (1, 128, 4, 4, 2), (1, 128, 8, 8, 2), (1, 64, 16, 4, 3), (1, 256, 4, 8, 2),
        (4, 128, 1, 4, 2), (8, 128, 1, 4, 2), (16, 128, 1, 4, 2), (16, 128, 1, 4, 3),
        (32, 128, 1, 4, 2), (16, 64, 1, 4, 2), (16, 128, 1, 8, 2), (16, 256, 1, 8, 2),
        (32, 128, 1, 4, 3), (64, 128, 1, 4, 3),
    )
]  # fmt: skip


def sweep_indexer(found):
    for sequences, length, queries in ((64, 65536, 1), (1, 65536, 1), (1, 4096, 4096)):
        asking = Asking(sequences, length, queries)
        wanted = asking.wanted(asking.query.shape[0] // 2)
        token = asking.query.shape[0] // 2

        def logits_error(launches, asking=asking, wanted=wanted, token=token):
            asking.logits.fill_(torch.nan)
            launch_all(launches)
            return error_of(asking.logits[token, : wanted.numel()], wanted)

        choices = {
            " ".join(map(str, shape)): asking.launches(shape)[:1]
            for shape in LOGITS
            if (shape.tokens == 1) is (queries == 1)
        }
        name = f"B{sequences} S{length} q{queries}"
        sweep(found, "logits", name, choices, once, logits_error, 0.0)
        launch_all(asking.launches())
        picked = asking.picks.clone()
        for cut in (False, True):
            compile_all(asking.launches(None, cut))
            asking.picks.fill_(-2)
            ms = graph_ms([lambda a=asking, c=cut: launch_all(a.launches(None, c)[1:])])
            differ = int((asking.picks != picked).sum())
            found.add("pick", name, ours=ms, cut=cut, differ=differ)
        del asking
        torch.cuda.empty_cache()


def sweep_prefill(found):
    for sequences, length in ((1, 4096), (8, 1024)):
        prompt = Prompt(sequences, length)
        choices = {
            f"{rows}x{keys} w{warps} s{stages}": [prompt.launch(Tiles(rows, keys, warps, stages))]
            for rows, keys, warps, stages in (
                (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2),
                (64, 64, 4, 3), (64, 128, 4, 2), (128, 32, 8, 3), (128, 64, 4, 2),
            )
        }  # fmt: skip
        sweep(
            found, "prefill", f"B{sequences} S{length}", choices,
            once, lambda w, prompt=prompt: prompt.error(w[0]), found.floor_ms(0, prompt.flops),
        )  # fmt: skip


# --- correctness -----------------------------------------------------------------------------


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


def main():
    asked = set(sys.argv[1:]) or {"check", "dense", "sparse", "packed", "indexer", "prefill"}
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    failures = check() if "check" in asked else []
    if asked != {"check"}:
        found = Rows()
        if asked & {"dense", "queries", "sweep-dense"}:
            pool = Pool(128 * 65536)
            steps = (("dense", dense), ("queries", queries), ("sweep-dense", sweep_dense))
            for name, step in steps:
                if name in asked:
                    step(found, pool)
            del pool
        for name, step in (
            ("sparse", sparse), ("packed", packed), ("indexer", indexer), ("short", short),
            ("prefill", prefill),
            ("sweep-sparse", sweep_sparse), ("sweep-indexer", sweep_indexer),
            ("sweep-prefill", sweep_prefill),
        ):  # fmt: skip
            if name in asked:
                try:
                    step(found)
                except Exception as error:
                    print("FAILED", name, type(error).__name__, str(error)[:300], flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
