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
import os
import sys
from itertools import product
from pathlib import Path

import torch
import triton
from gpu_times import GPU, Ceilings, compile_all, milliseconds
from paged_batches import WIDE, Batch
from paged_check import check
from paged_sweeps import sweep_decode, sweep_prefill
from peers import load_fa3, load_vllm_triton

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.paged import knobs_for

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
            "floor": ceilings.floor_ms(batch.bytes, batch.flops),
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
