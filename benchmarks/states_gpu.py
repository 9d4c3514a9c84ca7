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
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import torch
import triton
from gpu_times import GPU, milliseconds
from states_gpu_peers import peers_of

from attnctl.compare import relative_rms
from attnctl.kernels.triton import decayed, gdn_chunks, mamba1_scan
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.ops.state_trial import SPECIFICATIONS
from attnctl.ops.states import over_tensors
from attnctl.runtime import StateMetadata

HALF = torch.bfloat16
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
STATES = {
    "gdn": ((32, 128, 128), torch.float32),
    "kda": ((32, 128, 128), torch.float32),
    "mamba2": ((128, 64, 128), HALF),
    "linear": ((64, 128, 128), torch.float32),
    "mamba1": ((8192, 16), torch.float32),
    "short_conv": ((3, 8192), HALF),
}
"""One slot. Shapes: Qwen3-Next's GDN with a key head per value head; Mamba 2 of 128 heads of 64,
8 groups, 128 states; MiniMax-Text-01's 64 heads; Mamba 1 and convolutions of 8192 channels."""


def draw(*shape, dtype=HALF):
    return torch.randn(*shape, device=GPU, dtype=dtype)


def uniform(*shape, dtype=torch.float32):
    return torch.rand(*shape, device=GPU, dtype=dtype)


def gdn(tokens, channel=False):
    gates = (32, 128) if channel else (32,)
    return Gdn(
        q=draw(tokens, 32, 128),
        k=draw(tokens, 32, 128),
        v=draw(tokens, 32, 128),
        g=-uniform(tokens, *gates),
        beta=uniform(tokens, 32, dtype=HALF),
        scale=128**-0.5,
        l2norm=True,
    )


def mamba2(tokens):
    return Mamba2(
        x=draw(tokens, 128, 64),
        dt=draw(tokens, 128),
        b=draw(tokens, 8, 128),
        c=draw(tokens, 8, 128),
        a=-uniform(128),
        d=uniform(128),
        dt_bias=uniform(128),
    )


def mamba1(tokens):
    return Mamba1(
        x=draw(tokens, 8192),
        dt=draw(tokens, 8192),
        b=draw(tokens, 16),
        c=draw(tokens, 16),
        a=-uniform(8192, 16) - 0.1,
        d=uniform(8192),
        dt_bias=uniform(8192),
    )


def linear(tokens):
    slope = 2.0 ** -(8.0 * torch.arange(1, 65, device=GPU) / 64)
    return Linear(
        q=draw(tokens, 64, 128), k=draw(tokens, 64, 128), v=draw(tokens, 64, 128), slope=slope,
        scale=128**-0.5,
    )  # fmt: skip


def short_conv(tokens):
    weight, bias = draw(8192, 4), draw(8192)
    return ShortConv(x=draw(tokens, 8192), weight=weight, bias=bias, activation="silu")


MAKERS = {
    "gdn": gdn,
    "kda": lambda tokens: gdn(tokens, channel=True),
    "mamba2": mamba2,
    "mamba1": mamba1,
    "linear": linear,
    "short_conv": short_conv,
}


class Batch:
    """Rows of equal length, each with a slot of its own; decodes have a state, prompts none."""

    def __init__(self, op, rows, length, sets=1):
        self.op, self.rows, self.length, self.tokens = op, rows, length, rows * length
        self.known = length == 1
        self.inputs = MAKERS[op](self.tokens)
        shape, dtype = STATES[op]
        self.pool = draw(rows * sets + 1, *shape, dtype=dtype)
        # slot 0 is the null block of vLLM's kernels
        order = 1 + torch.randperm(rows * sets, device=GPU, dtype=torch.int32)
        self.sets = order.view(sets, rows)
        self.slots = self.sets[0]
        self.theirs = None
        self.starts = torch.arange(0, self.tokens + 1, length, device=GPU, dtype=torch.int32)
        first = getattr(self.inputs, "v", getattr(self.inputs, "x", None))
        self.out = torch.empty_like(first)
        self.bytes = self.out.nbytes + self.pool[0].nbytes * rows * (1 + self.known)
        over_tensors(self.inputs, self._count)

    def _count(self, tensor):
        self.bytes += tensor.nbytes
        return tensor

    def __len__(self):
        return len(self.sets)

    def view(self, which, **changes):
        """The same batch on another set of slots."""
        batch = Batch.__new__(Batch)
        batch.__dict__.update(self.__dict__, slots=self.sets[which], **changes)
        return batch

    def metadata(self):
        return StateMetadata(
            query_start_loc=self.starts,
            state_indices=self.slots[:, None],
            has_initial_state=torch.full((self.rows,), self.known, device=GPU),
            max_query_len=self.length,
        )

    def reference(self):
        """Outputs by the specification in float32, or by the recurrent kernel; and the pool."""
        pool = self.pool.clone()
        out = torch.empty_like(self.out, dtype=torch.float32)
        batch = self.view(0, pool=pool, out=out)
        if self.length == 1:
            run = SPECIFICATIONS[self.op.replace("kda", "gdn")]
            run(self.inputs, pool, batch.metadata(), out=out, dtype=torch.float32)
        else:
            with recurrent():
                ours(batch)()
        return out, pool


def ours(batch):
    """A call of the bundled kernel."""
    module = import_module(f"attnctl.kernels.triton.{batch.op.replace('kda', 'gdn')}")
    metadata = batch.metadata()

    def run():
        module.forward(batch.inputs, batch.pool, metadata, batch.out)
        return batch.out

    return run


@contextmanager
def recurrent():
    """Long rows token by token. A convolution has no other form."""
    modules = (decayed, gdn_chunks, mamba1_scan)
    before = [module.LONG for module in modules]
    for module in modules:
        module.LONG = 2**31
    yield
    for module, value in zip(modules, before, strict=True):
        module.LONG = value


def bandwidth():
    """Bytes a millisecond of a large copy, read and written."""
    source = torch.empty(2**31, dtype=torch.uint8, device=GPU)
    target = torch.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda: target.copy_(source), graph=False)


def error_of(found, wanted):
    return float(f"{relative_rms(found.float().view(wanted.shape), wanted):.3g}")


def time_case(op, rows, length, rate, peers=True):
    """One row of the table: times, floor and errors."""
    decode = length == 1
    state = torch.Size(STATES[op][0]).numel() * STATES[op][1].itemsize
    sets = max(1, min(64, -(-L2_BYTES // (state * rows)))) if decode else 1
    batch = Batch(op, rows, length, sets)
    row = {"op": op, "rows": rows, "length": length, "floor_ms": batch.bytes / rate}
    wanted, pool = batch.reference()
    batch.theirs = batch.pool.clone()
    makers = (peers_of(op) if peers else {}) | {"ours": ours}
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
