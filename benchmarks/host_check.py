"""Launches that are kept against new ones, bit for bit."""

from __future__ import annotations

from itertools import product

import torch
from host_models import GPU, SHAPES, LatentModel, Model, attending
from mla_prompts import Prompt
from paged_batches import Batch

from attnctl.backends.triton_mla.kernel import TritonMla
from attnctl.kernels.triton.paged import paged_attention
from attnctl.kernels.triton.paged.runtime import TritonAttention
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops.paged import Paged


def check(rows):
    """The number of wrong outputs, each printed."""
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
