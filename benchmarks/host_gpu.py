"""Times what a call of paged attention costs the host, and checks launches that are kept.

    python benchmarks/host_gpu.py [check] [times] [step]

check: outputs of kept launches are bit for bit those of new ones: other tensors, other addresses,
two streams at once, a CUDA graph replayed beside them. times: microseconds of processor a call, of
calls that are queued and not waited for: `same` form, other `layers` of it (their own caches), a
`new` form each time. step: a prompt or a token through 32 layers, launched from Python, until the
GPU is done. With PEER (see paged_gpu.py) FlashAttention-3's operator beside; with OUT a JSON file
of the rows, TAG in its name. Runs on older trees too, which keep no launches.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from functools import partial
from itertools import count, product
from pathlib import Path

import torch
from mla_gpu import Prompt
from paged_gpu import Batch
from peers import load_fa3

from attnctl.backends.triton_mla.kernel import TritonMla
from attnctl.kernels.triton import paged_attention
from attnctl.kernels.triton.mla_prefill import prefill_attend
from attnctl.kernels.triton.runtime import TritonAttention
from attnctl.ops.mla import Latent
from attnctl.ops.paged import Paged

SHAPES = (
    (8, 1024, 1024),
    (1, 512, 512),
    (4, 8192, 512),
    (16, 1024, 1),
    (64, 2048, 1),
    (16, 8192, 4),
)
LATENT = ((16, 512, 16), (8, 1024, 16), (16, 512, 128))
LAYERS = 32
GPU = torch.device("cuda", 0)


def host_us(call, calls=64, rounds=7):
    """The median over rounds of the time until a call returns; the GPU is idle when one begins."""
    call()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    torch.cuda.synchronize()
    return statistics.median(times)


def step_ms(calls, rounds=9):
    """The median over rounds of all calls, until the GPU has done them."""
    times = []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in calls:
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[2:])


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


def times(rows):
    fa3 = load_fa3()
    for shape in SHAPES:
        model = Model(*shape, layers=8)
        turn, longer = count(), count(shape[1] + 1)
        row = {"shape": "B{} S{} q{}".format(*shape)}
        row["same"] = host_us(lambda m=model: m.call(m.caches[0]))
        row["layers"] = host_us(lambda m=model, n=turn: m.call(m.caches[next(n) % 8]))
        row["new"] = host_us(lambda m=model, n=longer: m.call(m.caches[0], m.bounded(next(n))))
        row["write"] = host_us(model.writing(model.caches[0]))
        if fa3 is not None:
            row["fa3"] = host_us(fa3(model.batch))
        add(rows, "host us", row)
        del model
        torch.cuda.empty_cache()
    latent_times(rows)


def latent_times(rows):
    """The uncompressed form of latent attention, sequences x tokens x heads."""
    for shape in LATENT:
        prompt = Prompt(*shape)
        row = {"shape": "latent B{} S{} h{}".format(*shape), "same": host_us(attending(prompt))}
        add(rows, "host us", row)
    for heads in (16, 128):
        model = LatentModel(16, 4096, heads, layers=1, queries=1)
        row = {"shape": f"latent B16 S4096 h{heads} q1"}
        add(rows, "host us", row | {"same": host_us(partial(model.forward, model.caches[0]))})


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
    more = {"kept": prompt.kept} if hasattr(prompt, "kept") else {}
    return lambda: prefill_attend(
        prompt.query, prompt.keys, prompt.values, prompt.starts, prompt.metadata, prompt.scale,
        causal=True, max_keys=prompt.length, **more,
    )  # fmt: skip


def step(rows):
    fa3 = load_fa3()
    for shape in SHAPES:
        layers = LAYERS if shape[0] * shape[1] < 50000 else 8
        model = Model(*shape, layers=layers)
        calls = {"ours": [lambda c=c, m=model: m.call(c) for c in model.caches]}
        if fa3 is not None:
            calls["fa3"] = []
            for cache in model.caches:
                model.batch.keys, model.batch.values = cache[..., :128], cache[..., 128:]
                calls["fa3"].append(frozen(fa3, model.batch))
        found = {name: [] for name in calls}
        for _ in range(3):
            for name, one in calls.items():
                found[name].append(step_ms(one, rounds=5))
        row = {"shape": "B{} S{} q{}".format(*shape), "layers": layers}
        add(rows, "step ms", row | {n: statistics.median(t) for n, t in found.items()})
        del model, calls
        torch.cuda.empty_cache()
    latent_step(rows)


def latent_step(rows):
    """The uncompressed form through 16 layers, their caches read and uncompressed."""
    for shape in LATENT[:2]:
        model = LatentModel(*shape, layers=16)
        calls = [partial(model.prefill, cache) for cache in model.caches]
        row = {"shape": "latent B{} S{} h{}".format(*shape), "layers": 16}
        add(rows, "step ms", row | {"ours": step_ms(calls, rounds=7)})


def frozen(make, batch):
    """A peer's call over what a batch holds now."""
    copied = object.__new__(Batch)
    copied.__dict__.update(batch.__dict__)
    return make(copied)


def add(rows, group, row):
    rows.append({"group": group, **row})
    text = " ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
    )
    print(group, text, flush=True)


# --- correctness -----------------------------------------------------------------------------


def check(rows):
    """The number of wrong outputs, each printed."""
    from attnctl.kernels.triton.relaunch import Relaunches

    wrong = [
        *(f"{one} {kw}: {bad}" for one in SHAPES for kw in VARIANTS for bad in other(one, **kw)),
        *streams(),
        *graphs(),
        *unaligned(),
        *latent(),
        *writes(),
        *steps(),
    ]
    assert Relaunches().place(torch.zeros(1, device=GPU)) == 0
    rows.append({"group": "check", "wrong": wrong})
    print("check:", wrong or "all right", flush=True)
    return len(wrong)


VARIANTS = (
    {},
    {"page": 128},
    {"window": 700},
    {"width": 192, "value_width": 128},
    {"softcap": 30.0, "page": 64},
    {"cache": torch.float8_e4m3fn, "k_scale": 0.5},
)


def outputs(batch, kept):
    out = torch.full_like(batch.out, torch.nan)
    paged_attention(
        *batch.tensors, batch.params, max_query_len=batch.queries, max_seq_len=batch.length,
        out=out, kept=kept,
    )  # fmt: skip
    return out


def other(shape, page=16, width=128, value_width=None, cache=None, **more):
    """Where kept launches differ from new ones, over three batches of one form."""
    kept = None
    for seed in range(3):
        torch.manual_seed(seed)
        batch = Batch(*shape, page=page, width=width, value_width=value_width, cache=cache)
        batch.params = Paged(scale=width**-0.5, **more)
        if batch.length > batch.queries:
            batch.lengths -= seed * 3
        kept = kept or batch.kept
        for turn in ("first", "again", "other pages"):
            if turn == "other pages":
                batch.table.copy_(batch.table.flip(0))
            if not torch.equal(outputs(batch, kept), outputs(batch, None)):
                yield f"output of seed {seed}, {turn}"
    # a decoding batch's launches are found by its bounds and by its plan
    known = {id(one) for one in kept._known.values()}
    if len(known) != 1:
        yield f"{len(known)} sets of launches were made for one form"


def streams():
    """Prompts on four streams at once, many times, through one runtime's counters."""
    lanes = [torch.cuda.Stream() for _ in range(4)]
    batches = [Batch(2 + n, 512, 512) for n in range(4)]
    kept, wanted = batches[0].kept, [outputs(one, None) for one in batches]
    torch.cuda.synchronize()
    bad = 0
    for _ in range(60):
        found = []
        for lane, batch in zip(lanes, batches, strict=True):
            with torch.cuda.stream(lane):
                found.append([outputs(batch, kept) for _ in range(3)])
        torch.cuda.synchronize()
        bad += sum(
            not torch.equal(one, want)
            for many, want in zip(found, wanted, strict=True)
            for one in many
        )
    return [f"streams: {bad}"] * bool(bad) + ["streams: counters"] * (len(kept._counts) != 4)


def graphs():
    """Two graphs captured on one stream, replayed on two beside launches on a third."""
    lanes = [torch.cuda.Stream() for _ in range(2)]
    batches = [Batch(4, 512, 512), Batch(3, 512, 512), Batch(2, 512, 512)]
    kept, wanted = batches[0].kept, [outputs(one, None) for one in batches]
    outputs(batches[0], kept)
    held, captured = [], []
    for batch in batches[:2]:
        outputs(batch, kept)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured.append(outputs(batch, kept))
        held.append(graph)
    bad = 0
    for _ in range(40):
        for one in captured:
            one.fill_(torch.nan)
        torch.cuda.synchronize()
        for lane, graph in zip(lanes, held, strict=True):
            with torch.cuda.stream(lane):
                graph.replay()
                graph.replay()
        eager = [outputs(batches[2], kept) for _ in range(3)]
        torch.cuda.synchronize()
        bad += sum(not torch.equal(*pair) for pair in zip(captured, wanted[:2], strict=True))
        bad += sum(not torch.equal(one, wanted[2]) for one in eager)
    return [f"graphs: {bad}"] * bool(bad)


def unaligned():
    """A query, then a batch's starts and lengths, at addresses that are no multiple of 16."""
    for shape in ((8, 1024, 1024), (16, 1024, 1)):
        batch = Batch(*shape)
        kept = batch.kept
        outputs(batch, kept)
        query = torch.empty(batch.query.numel() + 1, device=GPU, dtype=batch.query.dtype)[1:]
        aligned, batch.query = batch.query, query.view(batch.query.shape).copy_(batch.query)
        if not torch.equal(outputs(batch, kept), outputs(batch, None)):
            yield f"unaligned query {shape}"
        batch.query = aligned
        batch.starts = torch.cat([batch.starts[:1], batch.starts])[1:]
        batch.lengths = torch.cat([batch.lengths[:1], batch.lengths])[1:]
        if not torch.equal(outputs(batch, kept), outputs(batch, None)):
            yield f"unaligned lengths {shape}"


def latent():
    """Uncompressed latent attention through kept launches, over three prompts of one form."""
    for shape in ((3, 700, 16), (2, 64, 16)):
        kept = None
        for seed in range(3):
            torch.manual_seed(seed)
            prompt = Prompt(*shape)
            kept = prompt.kept = kept or prompt.kept
            found = attending(prompt)()
            prompt.kept = None
            wanted = attending(prompt)()
            if not all(torch.equal(*pair) for pair in zip(found, wanted, strict=True)):
                yield f"latent {shape} {seed}"
        if len(kept._known) != 1:
            yield f"latent {shape}: {len(kept._known)} forms"
    for heads, queries in product((16, 128), (1, 3)):
        runtime = None
        for seed in range(3):
            torch.manual_seed(seed)
            model = LatentModel(5, 2000, heads, layers=1, queries=queries)
            fresh = model.forward(model.caches[0])
            model.runtime = runtime = runtime or model.runtime
            for _ in range(2):
                if not torch.equal(model.forward(model.caches[0]), fresh):
                    yield f"absorbed {heads} {queries} {seed}"
    model = LatentModel(3, 300, 16, layers=2)
    for cache in model.caches:
        found = model.prefill(cache)
        model.runtime, runtime = TritonMla(), model.runtime
        if not torch.equal(found, model.prefill(cache)):
            yield "latent layers"
        model.runtime = runtime


def steps():
    """Decoding with exact bounds, a few tokens more at each step, from one segment to many."""
    batch = Batch(4, 4096, 1)
    kept, plans = batch.kept, set()
    for longest in (*range(16, 4096, 37), *range(16, 4096, 37)):
        batch.lengths.fill_(longest)
        batch.length = longest
        if not torch.equal(outputs(batch, kept), outputs(batch, None)):
            yield f"steps {longest}"
        plans |= {id(known) for known in kept._known.values()}
    if not 1 < len(plans) < 20:
        yield f"steps: {len(plans)} plans"


def writes():
    """Writes of other tokens into other slots of another cache, by one runtime and by new ones."""
    for shape in ((2, 512, 512), (16, 512, 1)):
        one = Model(*shape, layers=0)
        for seed in range(3):
            torch.manual_seed(seed)
            caches = []
            for runtime in (one.runtime, TritonAttention("TRITON_ATTN")):
                torch.manual_seed(seed)
                model = Model(*shape, layers=1)
                model.runtime = runtime
                model.writing(model.caches[0])()
                caches.append(model.caches[0])
            if not torch.equal(*caches):
                yield f"writes {shape} {seed}"


def main():
    asked = set(sys.argv[1:]) or {"check", "times", "step"}
    rows, bad = [], 0
    for name, run in (("check", check), ("times", times), ("step", step)):
        if name in asked:
            bad += run(rows) or 0
    if "OUT" in os.environ:
        name = f"host_gpu{os.environ.get('TAG', '')}.json"
        Path(os.environ["OUT"], name).write_text(json.dumps(rows, indent=1))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
