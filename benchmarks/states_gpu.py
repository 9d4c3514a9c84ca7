"""Times the Triton state-space kernels on a GPU against fla's and vLLM's.

    python benchmarks/states_gpu.py [decode] [prefill] [gdn] [kda] [mamba2] [mamba1] [linear]
                                    [short_conv]

Beside every time stands the error of the output (root mean square over that of the reference): of a
decode against the specification, of a prefill against the recurrent kernel on the same shape, which
a decode's kernel is. Decode is timed inside a CUDA graph over several disjoint sets of slots, so
that no state is still in the L2; prefill by events, launched from Python, with a flushed L2, and
ours inside a graph as well (ours_graph_ms), without what Python takes. A time is the median of
rounds in which ours and the peers' take turns; the least of them stands beside. The floor is bytes
(inputs, outputs, states read and written) over the bandwidth of a copy measured in the same run.
With PEER, the peers of states_gpu_peers.py; with OUT, $OUT/states_gpu.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import triton
from gpu_times import GPU, milliseconds
from states_gpu_batches import STATES, Batch, ours
from states_gpu_peers import peers_of

from attnctl.ops.compare import relative_rms

L2_BYTES = 3 * 2**26
"""Of states that are gone through before one is used again: four times the L2 of an H200."""

ROUNDS, REP_MS = 3, 12
"""Every call is timed in turn, several times over: a disturbance meets all of them."""


# (operation, rows, tokens per row)
PREFILL = tuple(
    (op, rows, length)
    for op in ("gdn", "mamba2", "short_conv", "linear", "kda", "mamba1")
    for rows, length in ((1, 4096), (1, 16384), (16, 512))
)

DECODE = tuple(
    (op, rows, 1)
    for op in ("gdn", "mamba2", "mamba1", "short_conv", "linear", "kda")
    for rows in (1, 64, 256)
)


def bandwidth():
    """Bytes a millisecond of a large copy, read and written."""
    source = torch.empty(2**31, dtype=torch.uint8, device=GPU)
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source), graph=False)


def error_of(found, wanted):
    return float(f"{relative_rms(found.float().view(wanted.shape), wanted):.3g}")


def time_case(op, rows, length, rate):
    """One row of the table: times, floor and errors."""
    decode = length == 1
    state = torch.Size(STATES[op][0]).numel() * STATES[op][1].itemsize
    sets = max(1, min(64, -(-L2_BYTES // (state * rows)))) if decode else 1
    batch = Batch(op, rows, length, sets)
    row = {"op": op, "rows": rows, "length": length, "floor_ms": batch.bytes / rate}
    wanted, pool = batch.reference()
    batch.theirs = batch.pool.clone()
    makers = peers_of(op) | {"ours": ours}
    ready = {}
    for name, make in makers.items():
        try:
            calls = [make(batch.view(which)) for which in range(sets)]
            if calls[0] is None:
                continue
            row[f"{name}_error"] = error_of(calls[0](), wanted)
        except Exception as error:  # what does not run here is a fact to report
            row[f"{name}_ms"] = f"{type(error).__name__}: {str(error)[:160]}"
            continue
        if name == "ours":
            slots = batch.slots.long()
            row["state_error"] = error_of(batch.pool[slots], pool[slots].float())
        ready[name] = lambda calls=calls: [call() for call in calls]
    rounds = {name: [] for name in ready}
    for _ in range(ROUNDS):
        for name, call in ready.items():
            rounds[name].append(milliseconds(call, graph=decode, rep=REP_MS))
    for name, spent in rounds.items():
        failed = [one for one in spent if isinstance(one, str)]
        row[f"{name}_ms"] = failed[0] if failed else sorted(spent)[ROUNDS // 2] / sets
        row[f"{name}_least_ms"] = failed[0] if failed else min(spent) / sets
    if not decode:
        row["ours_graph_ms"] = milliseconds(ready["ours"], graph=True, rep=REP_MS)
    return row


def shown(row):
    return " ".join(
        f"{k}={round(v, 4) if isinstance(v, float) else v}" for k, v in row.items() if k != "op"
    )


def main():
    asked = set(sys.argv[1:])
    groups = {"decode": DECODE, "prefill": PREFILL}
    phases, ops = asked & set(groups) or set(groups), asked & set(STATES) or set(STATES)
    torch.manual_seed(0)
    rate = bandwidth()
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    rows = [{"op": "copy", "gbps": rate / 1e6}]
    print(f"copy {rate / 1e9:.2f} TB/s", flush=True)
    start = time.perf_counter()
    cases = [one for name in sorted(phases) for one in groups[name] if one[0] in ops]
    for op, count, length in cases:
        rows.append(time_case(op, count, length, rate))
        print(op, shown(rows[-1]), f"[{time.perf_counter() - start:.0f} s]", flush=True)
        torch.cuda.empty_cache()
        if "OUT" in os.environ:
            path = Path(os.environ["OUT"], "states_gpu.json")
            path.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
