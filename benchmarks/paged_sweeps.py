"""Every tile and number of segments of some lists, timed: knobs of an arch are chosen by them."""

from __future__ import annotations

from functools import partial
from itertools import product

import torch
from gpu_times import compile_all, milliseconds
from paged_batches import WIDE, Batch

from attnctl.kernels.triton.paged import Knobs, Tiles

PROMPTS = ((1, 16384, 16384), (8, 1024, 1024), (4, 8192, 512))

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
        compile_all([launch for choice in work for launch in choice])
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
