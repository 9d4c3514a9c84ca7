"""Times what a call of paged attention costs the host, and checks launches that are kept.

    python benchmarks/host_gpu.py [check] [times] [step]

check: outputs of kept launches are bit for bit those of new ones: other tensors, other addresses,
two streams at once, a CUDA graph replayed beside them. times: microseconds of processor a call, of
calls that are queued and not waited for: `same` form, other `layers` of it (their own caches), a
`new` form each time. step: a prompt or a token through 32 layers, launched from Python, until the
GPU is done. With PEER (see paged_gpu.py) FlashAttention-3's operator beside; with OUT a JSON file
of the rows, TAG in its name.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

import torch
from host_check import check
from host_models import LAYERS, SHAPES, LatentModel, Model, attending
from mla_prompts import Prompt
from paged_batches import Batch
from peers import load_fa3

LATENT = ((16, 512, 16), (8, 1024, 16), (16, 512, 128))


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
