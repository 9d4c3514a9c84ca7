"""Prints what a plan adds to a call: to choose a backend for a batch, and to hand the call on.

    python benchmarks/dispatch.py

Processor time of one thread, the least of several repeats, over an invented profile of 60 points.
The exit code is 1 where a choice takes more than its budget. tests/test_dispatch.py counts the
operations of the same.
"""

from __future__ import annotations

import itertools
import sys
import time
import timeit
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import attnctl
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.values import Entry, Point, Profile, Timing
from tests.commands.running import LLAMA
from tests.profile.factory import machine

BUDGET_US = 5.0
POINTS = tuple(
    Point(
        phase=phase,
        batch=batch,
        context=context,
        query=query,
        timings=(Timing(backend="CPU_ATTN", median_us=9.0, knobs={"parts": parts}),),
    )
    for phase, query in (("decode", 1), ("prefill", 512))
    for batch, parts in ((1, 2), (4, 4), (16, 8), (64, 16), (256, 32))
    for context in (256, 1024, 4096, 16384, 65536, 131072)
)
BATCHES = tuple(itertools.product(range(1, 257), (700, 5000, 40_000), (1,)))


class Nothing:
    """A runtime that computes nothing, so that what is left is the plan's own."""

    def build_metadata(self, *tensors, **named):
        return None

    def forward(self, *tensors, **named):
        return None


class Starts:
    shape = (5,)
    ndim = 1


def us(call, number):
    """Microseconds of one of `number` things that a call does."""
    return min(timeit.repeat(call, number=1, repeat=15, timer=time.process_time)) * 1e6 / number


def main() -> int:
    here, spec = machine("zen3"), read_model(LLAMA)
    shape = shape_of(layer_of(spec, spec.groups[0], Options()))
    entries = (Entry(shape=shape, points=POINTS),)
    profile = Profile(name="invented", key=key_of(here, None), entries=entries)
    layer = attnctl.plan(spec, here, profile=profile)[0]

    def new():
        layer._picks.clear()
        for batch in BATCHES:
            layer.pick(*batch)

    def known():
        for _ in range(1000):
            layer.pick(24, 5000, 1)

    found = {"a new batch shape": us(new, len(BATCHES)), "a known one": us(known, 1000)}
    layer._runtime = lambda pick: Nothing()
    layer._picks.clear()
    bounds = {"max_query_len": 1, "max_seq_len": 5000}
    planned = layer.build_metadata(Starts(), **bounds)
    plain = planned.runtime

    def through(owner):
        return lambda: [owner.build_metadata(Starts(), **bounds) for _ in range(1000)]

    def forward(owner, metadata):
        return lambda: [owner.forward(1, 2, metadata, 3) for _ in range(1000)]

    found["build_metadata, more than the runtime's own"] = us(through(layer), 1000) - us(
        through(plain), 1000
    )
    found["forward, more than the runtime's own"] = us(forward(layer, planned), 1000) - us(
        forward(plain, None), 1000
    )
    for name, time_us in found.items():
        print(f"{name}: {time_us:.2f} us")
    return int(max(found.values()) > BUDGET_US)


if __name__ == "__main__":
    sys.exit(main())
