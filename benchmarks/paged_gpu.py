"""Times the Triton paged-attention kernels on a GPU against FlashAttention-3 and others.

    python benchmarks/paged_gpu.py [check] [decode] [prefill] [diffkv] [fp8]
                                   [sweep-decode] [sweep-prefill]

First the outputs are checked against the specification in float64, then the times are medians:
decode inside a CUDA graph, prefill by events with a flushed L2. The floor is the larger of bytes
over the measured read bandwidth and operations over the measured matrix rate. With PEER naming a
folder of unpacked vLLM 0.33 wheels (vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so and its Triton
kernels), those are timed beside; without it they are left out. With OUT, $OUT/paged_gpu.json.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import torch
import triton
from peers import load_fa3, load_vllm_triton
from triton.testing import do_bench, do_bench_cudagraph

from attnctl.compare import compare
from attnctl.kernels.triton import Knobs, Tiles, knobs_for, paged_attention, write_cache
from attnctl.kernels.triton.call import shape_of
from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.paged_launches import launches
from attnctl.kernels.triton.plan import plan
from attnctl.kernels.triton.relaunch import Relaunches
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged

GPU = torch.device("cuda")
HEADS, KV_HEADS, WIDTH = 32, 8, 128
DECODE = (
    (1, 1024, 1),
    (1, 8192, 1),
    (1, 65536, 1),
    (16, 1024, 1),
    (16, 8192, 1),
    (64, 2048, 1),
    (64, 8192, 1),
    (256, 1024, 1),
    (256, 4096, 1),
)
SPECULATIVE = ((1, 8192, 4), (16, 8192, 4), (64, 4096, 4))
PREFILL = (
    (1, 4096, 4096),
    (1, 16384, 16384),
    (8, 1024, 1024),
    (4, 8192, 512),
    (1, 32768, 2048),
)


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


def milliseconds(call, *, graph, rep=30):
    """The median time of a call, or the text of its failure."""
    try:
        call()
        torch.cuda.synchronize()
        if graph:
            return do_bench_cudagraph(call, rep=rep, return_mode="median")
        return do_bench(call, warmup=10, rep=rep, return_mode="median")
    except Exception as error:  # what does not run here is a fact to report
        return f"{type(error).__name__}: {str(error)[:120]}"


def compile_all(jobs):
    """Compiles launches side by side, so that a sweep spends its time on timing."""

    def compile_one(launch):
        try:
            launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.constants)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:120]}"
        return None

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(compile_one, jobs))


# --- correctness -----------------------------------------------------------------------------


def check():
    """Every feature on this device against the specification. Gives the failures."""
    long = {"lens": (1, 63, 64, 65, 700), "queries": (1, 2, 64, 65, 129)}
    steps = {"lens": (1, 17, 300, 1000), "queries": (1, 1, 1, 1)}
    several = {"lens": (20, 17, 300, 1000), "queries": (4, 1, 7, 3)}
    cases = []
    for base in (long, steps, several):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            cases.append({**base, "dtype": dtype})
        for heads, kv_heads in ((7, 1), (40, 8), (71, 1), (8, 8), (128, 1)):
            cases.append({**base, "heads": heads, "kv_heads": kv_heads, "width": 64})
        for width, value_width in (
            (40, 40),
            (72, 72),
            (80, 80),
            (96, 96),
            (112, 112),
            (192, 128),
            (256, 256),
            (512, 512),
        ):
            cases.append({**base, "width": width, "value_width": value_width})
        for page in (64, 128):
            cases.append({**base, "page": page})
            cases.append({**base, "page": page, "width": 192, "value_width": 128})
        cases += [
            {**base, "window": 50},
            {**base, "window": 50, "page": 64},
            {**base, "chunk": 64},
            {**base, "softcap": 5.0},
            {**base, "sinks": True},
            {**base, "sinks": True, "window": 128, "width": 64, "heads": 64},
            {**base, "alibi": True},
            {**base, "ranges": True, "window": 20},
            {**base, "causal": False, "window": 30, "window_right": 30},
            {**base, "causal": False},
            {**base, "cache": torch.float8_e4m3fn},
            {**base, "cache": torch.float8_e5m2},
            {**base, "cache": torch.int8},
            {**base, "layout": "hnd", "page": 64},
            {**base, "layout": "interleaved", "page": 64},
        ]
    # processes, since most of the time is Triton's compiler
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as pool:
        verdicts = list(pool.map(try_case, cases))
    pairs = zip(cases, verdicts, strict=True)
    failures = [f"{case}: {verdict}" for case, verdict in pairs if verdict]
    print(f"check: {len(cases) - len(failures)} of {len(cases)} right", flush=True)
    for failure in failures:
        print("  ", failure, flush=True)
    return failures


def try_case(case):
    """A case's verdict, or the text of its failure."""
    torch.manual_seed(1)
    try:
        return check_case(**case)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def check_case(
    *,
    lens,
    queries,
    dtype=torch.bfloat16,
    heads=32,
    kv_heads=8,
    width=128,
    value_width=None,
    page=16,
    cache=None,
    layout="nhd",
    sinks=False,
    alibi=False,
    ranges=False,
    **params,
):
    """Empty where one batch is right."""
    value_width = value_width or width
    kv_heads = min(kv_heads, heads)
    make = {"device": GPU, "dtype": dtype}
    pages = max(math.ceil(n / page) for n in lens)
    total = len(lens) * pages + 1
    tokens = sum(lens)
    stored = cache or dtype
    k_cache = empty_cache(layout, total, page, kv_heads, width, stored)
    v_cache = empty_cache(layout, total, page, kv_heads, value_width, stored)
    table = torch.randperm(total - 1, device=GPU, dtype=torch.int32) + 1
    table = table.view(len(lens), pages)
    slots = torch.cat([table[b, i // page] * page + i % page for b, n in enumerate(lens)
                       for i in [torch.arange(n, device=GPU)]]).long()  # fmt: skip
    key = torch.randn(tokens, kv_heads, width, **make)
    value = torch.randn(tokens, kv_heads, value_width, **make)
    k_scale = v_scale = 1.0
    if cache == torch.int8:
        k_scale = torch.zeros(total, page, kv_heads, device=GPU)
        v_scale = torch.zeros(total, page, kv_heads, device=GPU)
    elif cache is not None:
        k_scale, v_scale = 0.5, 0.25
    write_cache(key, value, k_cache, v_cache, slots, k_scale, v_scale)
    query = torch.randn(sum(queries), heads, width, **make)
    starts = torch.tensor([0, *torch.tensor(queries).cumsum(0).tolist()], device=GPU).int()
    lengths = torch.tensor(lens, device=GPU).int()
    spec = Paged(
        scale=width**-0.5,
        sinks=torch.randn(heads, device=GPU) if sinks else None,
        alibi_slopes=torch.rand(heads, device=GPU) if alibi else None,
        prefix_ranges=torch.tensor([[[3, 40], [45, 90]]] * len(lens), device=GPU).int()
        if ranges
        else None,
        k_scale=k_scale,
        v_scale=v_scale,
        **params,
    )
    out = torch.full((query.shape[0], heads, value_width), math.nan, **make)
    inputs = (query, k_cache, v_cache, table, starts, lengths, spec)
    paged_attention(*inputs, max_query_len=max(queries), max_seq_len=max(lens), out=out)
    exact = specification.paged_attention(*inputs)
    same = specification.paged_attention(*inputs, dtype=dtype)
    result = compare(out, exact, same)
    return "" if result.verdict == "pass" else f"{result.verdict} {result.detail}"


def empty_cache(layout, pages, page, heads, width, dtype):
    """A cache [N, P, Hk, width] with the strides of a layout, filled with NaN where it can be."""
    sizes = {
        "nhd": (pages, page, heads, width),
        "hnd": (pages, heads, page, width),
        "interleaved": (pages, 2, page, heads, width),
    }[layout]
    if dtype == torch.int8:
        whole = torch.zeros(sizes, device=GPU, dtype=dtype)
    else:
        whole = torch.full(sizes, math.nan, device=GPU, dtype=torch.float32).to(dtype)
    return {"nhd": whole, "hnd": whole.transpose(1, 2), "interleaved": whole[:, 0]}[layout]


# --- times -----------------------------------------------------------------------------------


class Ceilings:
    """The two measured rates of this card, and the floor that they give."""

    def __init__(self):
        source = torch.randn(2**30, device=GPU, dtype=torch.bfloat16)
        seconds = do_bench(lambda: source.view(torch.int16).amax(), return_mode="median") / 1e3
        self.read = source.nbytes / seconds
        one = torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16)
        other = torch.randn_like(one)
        self.matrix = 2 * 8192**3 / (do_bench(lambda: one @ other, return_mode="median") / 1e3)
        print(f"read {self.read / 1e12:.2f} TB/s, matrix {self.matrix / 1e12:.0f} TFLOP/s")

    def floor_ms(self, batch):
        return 1e3 * max(batch.bytes / self.read, batch.flops / self.matrix)


def time_group(name, shapes, pages, ceilings, fa3, vllm, *, graph, rows, **sizes):
    """Our time beside the peers' on each shape."""
    for (sequences, length, queries), page in product(shapes, pages):
        batch = Batch(sequences, length, queries, page=page, **sizes)
        knobs = knobs_for(device_of(GPU).arch)
        chosen, work = batch.launches(knobs)
        compile_all(work)
        row = {
            "group": name,
            "shape": f"B{sequences} S{length} q{queries} page{page}",
            "ours": milliseconds(batch.ours, graph=graph),
            "floor": ceilings.floor_ms(batch),
        }
        calls = {"ours": batch.ours}
        for peer, make in (("fa3", fa3), ("vllm_triton", vllm)):
            if make is not None:
                calls[peer] = make(batch)
                row[peer] = milliseconds(calls[peer], graph=graph)
        if name == "prefill" and length == queries:
            row["sdpa"] = milliseconds(dense(batch), graph=False)
        if not graph and isinstance(row["ours"], float) and row["ours"] < 1:
            # so short a prompt is timed without the launch from Python too
            row |= {f"{n}_graph": milliseconds(call, graph=True) for n, call in calls.items()}
        row["plan"] = (
            f"{chosen.kernel} {chosen.rows}x{chosen.tile} w{chosen.warps} s{chosen.stages} "
            f"seg{chosen.segments} desc{int(chosen.descriptors)} groups{int(chosen.groups)}"
        )
        report(row, batch)
        rows.append(row)


def dense(batch):
    """torch SDPA over contiguous keys: what paging and variable lengths are measured against."""
    groups = batch.sequences, batch.length
    query = batch.query.view(*groups, *batch.query.shape[1:]).transpose(1, 2)
    shape = (*groups, *batch.keys.shape[2:])
    keys = torch.randn(shape, device=GPU, dtype=batch.query.dtype).transpose(1, 2)
    values = torch.randn_like(keys)
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, is_causal=True, enable_gqa=True
    )


def report(row, batch):
    parts = [f"{row['group']:12s} {row['shape']:26s}"]
    ours = row["ours"]
    for name, value in row.items():
        if isinstance(value, float):
            parts.append(f"{name} {value:.4f}")
            if name != "ours" and isinstance(ours, float):
                parts.append(f"({value / ours:.2f}x)")
        elif name not in ("group", "shape"):
            parts.append(f"{name}: {value}")
    if isinstance(ours, float):
        parts.append(f"{batch.flops / ours / 1e9:.0f} TFLOP/s {batch.bytes / ours / 1e9:.2f} TB/s")
    print(" ".join(parts), flush=True)


def summary(rows):
    """Geometric mean and worst ratio of each peer's time to ours, by group and page size."""
    groups = {}
    for row, (peer, timed) in product(
        rows, product(("fa3", "vllm_triton", "sdpa"), ("", "_graph"))
    ):
        theirs, ours = row.get(peer + timed), row.get("ours" + timed)
        if isinstance(theirs, float) and isinstance(ours, float):
            key = row["group"], row["shape"].rpartition(" ")[2], peer + timed
            groups.setdefault(key, []).append(theirs / ours)
    for (group, page, peer), ratios in groups.items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{group} {page}: {mean:.2f}x of {peer} in the mean, {min(ratios):.2f}x at worst")


# --- sweep -----------------------------------------------------------------------------------


PROMPTS = ((1, 16384, 16384), (8, 1024, 1024), (4, 8192, 512))
WIDE = {"heads": 64, "kv_heads": 4, "width": 192, "value_width": 128}
PREFILL_TILES = (
    ({}, PROMPTS, ((64, 32, 4, 3), (64, 32, 4, 4), (64, 64, 4, 2), (64, 64, 4, 3),
                   (128, 64, 8, 3), (128, 64, 8, 4), (128, 32, 8, 4), (256, 64, 8, 3))),
    ({"width": 64}, ((1, 8192, 8192),),
     ((64, 64, 4, 2), (64, 64, 4, 3), (64, 64, 4, 4), (64, 128, 4, 2), (64, 128, 4, 3),
      (128, 64, 4, 3), (128, 128, 8, 3), (128, 64, 8, 3))),
    ({"width": 256}, ((1, 8192, 8192),),
     ((64, 32, 4, 2), (64, 64, 4, 2), (64, 64, 8, 2), (128, 32, 8, 2), (128, 64, 8, 2),
      (128, 32, 8, 3))),
    (WIDE, ((1, 8192, 8192),),
     ((64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (128, 64, 8, 2), (128, 64, 8, 3),
      (64, 64, 8, 3))),
)  # fmt: skip
DECODE_TILES = ((32, 4, 3), (32, 4, 4), (64, 4, 2), (64, 4, 3), (128, 4, 2), (128, 8, 2),
                (128, 8, 3))  # fmt: skip


def sweep_prefill(rows):
    """Every tile of the lists above, by pointers on pages of 16, by descriptors on 128."""
    for page, (sizes, shapes, tiles) in product((16, 128), PREFILL_TILES):
        choices = [
            Knobs(descriptors=page == 128, prefill=Tiles(*tile), wide=Tiles(*tile))
            for tile in tiles
        ]
        sweep("prefill", shapes, page, tiles, choices, rows, graph=False, **sizes)


def sweep_decode(rows):
    """Every tile and every number of segments on the decode shapes."""
    names, choices = [], []
    for (tile, warps, stages), segments in product(DECODE_TILES, (1, 2, 4, 8, 16, 32)):
        names.append((tile, warps, stages, segments))
        choices.append(
            Knobs(
                min_programs=10**9,
                fill=10**9,
                segments=segments,
                least_keys=tile,
                decode=Tiles(16, tile, warps, stages),
            )
        )
    sizes = ({}, {"width": 64}, {"width": 256}, WIDE, {"cache": torch.float8_e4m3fn})
    for size in sizes:
        shapes = ((1, 8192, 1), (16, 8192, 1), (128, 2048, 1), (16, 8192, 4))
        sweep("decode", shapes, 16, names, choices, rows, graph=True, **size)


def sweep(name, shapes, page, names, choices, rows, *, graph, **sizes):
    for sequences, length, queries in shapes:
        batch = Batch(sequences, length, queries, page=page, **sizes)
        work = [batch.launches(knobs)[1] for knobs in choices]
        unique = {}
        for launch in (launch for launches_ in work for launch in launches_):
            unique[launch.kernel.__name__, str(sorted(launch.constants.items(), key=str))] = launch
        compile_all(unique.values())
        times = {}
        for label, knobs in zip(names, choices, strict=True):
            if name == "decode" and label[-1] > 1 and sequences * label[-1] > 256:
                continue
            times[str(label)] = milliseconds(partial(batch.ours, knobs), graph=graph, rep=8)
        good = sorted((t, n) for n, t in times.items() if isinstance(t, float))
        shape = f"B{sequences} S{length} q{queries} page{page} {sizes or ''}"
        rows.append({"group": f"sweep {name}", "shape": shape, "times": times})
        best = "; ".join(f"{n} {t:.4f}" for t, n in good[:6])
        print(f"sweep {name} {shape}: {best}", flush=True)
        for label, time in times.items():
            if not isinstance(time, float):
                print("   ", label, time, flush=True)


def main():
    asked = set(sys.argv[1:]) or {"check", "decode", "prefill", "diffkv", "fp8"}
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    rows = []
    failures = check() if "check" in asked else []
    if "sweep-decode" in asked:
        sweep_decode(rows)
    if "sweep-prefill" in asked:
        sweep_prefill(rows)
    if asked & {"decode", "prefill", "diffkv", "fp8"}:
        ceilings = Ceilings()
        fa3, vllm = load_fa3(), load_vllm_triton()
        peers = (ceilings, fa3, vllm)
        if "decode" in asked:
            time_group("decode", DECODE, (16, 128), *peers, graph=True, rows=rows)
            time_group("speculative", SPECULATIVE, (16, 128), *peers, graph=True, rows=rows)
        if "prefill" in asked:
            time_group("prefill", PREFILL, (16, 128), *peers, graph=False, rows=rows)
        if "diffkv" in asked:
            shapes = ((16, 8192, 1), (128, 2048, 1), (1, 8192, 8192))
            for shape in shapes:
                graph = shape[2] == 1
                time_group("diffkv", (shape,), (16, 64), *peers[:2], None, graph=graph, rows=rows,
                           **WIDE)  # fmt: skip
        if "fp8" in asked:
            time_group("fp8", DECODE[4:7], (16,), ceilings, None, None, graph=True, rows=rows,
                       cache=torch.float8_e4m3fn)  # fmt: skip
            time_group("fp8", PREFILL[:1], (16,), ceilings, None, None, graph=False, rows=rows,
                       cache=torch.float8_e4m3fn)  # fmt: skip
        summary(rows)
    if "OUT" in os.environ:
        Path(os.environ["OUT"], "paged_gpu.json").write_text(json.dumps(rows, indent=1))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
