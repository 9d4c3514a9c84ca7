"""What choosing a backend costs for each batch, counted in operations, not in time."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

from tests.commands.running import ROOT

COUNT = """
import json, sys
import attnctl
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.profile.document import key_of, shape_of
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from tests.commands.running import LLAMA
from tests.profile.factory import machine

here, spec = machine("zen3"), read_model(LLAMA)
points = tuple(
    Point(
        phase=phase, batch=batch, context=context, query=query,
        timings=(Timing(backend="CPU_ATTN", median_us=9.0, knobs={"parts": parts}),),
    )
    for phase, query in (("decode", 1), ("prefill", 512))
    for batch, parts in ((1, 2), (4, 4), (16, 8), (64, 16), (256, 32))
    for context in (512, 1024, 4096, 16384, 65536)
)
shape = shape_of(layer_of(spec, spec.groups[0], Options()))
profile = Profile(
    name="p", key=key_of(here, None), entries=(Entry(shape=shape, points=points),)
)
layer = attnctl.plan(spec, here, profile=profile)[0]
for batch in (1, 4, 16, 64, 256):  # the runtime of each setting is made when it is first met
    assert layer.pick(batch, 1024, 1).knobs, batch

events, calls = [], 0
listening = False
sys.addaudithook(lambda name, details: events.append(name) if listening else None)

def counted(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")

def count(batches):
    global calls, listening
    sys.setprofile(counted)
    calls, listening = 0, True
    for batch, context, query in batches:
        layer.pick(batch, context, query)
    listening = False
    sys.setprofile(None)
    return calls / len(batches)

fresh = [(b, s, q) for b in range(1, 200, 7) for s in (700, 3000, 40000) for q in (1, 300)]
first, again = count(fresh), count(fresh)
many = [(b, 5000, 1) for b in range(1, 9000)]
count(many)
print(json.dumps({"first": first, "again": again, "events": events, "kept": len(layer._picks)}))
"""


@cache
def counted() -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_dispatch_reads_no_file_imports_nothing_and_starts_nothing() -> None:
    """Python's own audit hears neither an open file nor an import, a process or a compilation."""
    assert counted()["events"] == []


def test_a_batch_shape_that_was_met_costs_a_handful_of_calls() -> None:
    """Its pick is looked up: nothing is measured and nothing searched."""
    assert float(str(counted()["again"])) <= 8


def test_a_new_batch_shape_costs_a_search_of_one_table() -> None:
    """Logarithms and bisections among its rows, whatever the number of points."""
    assert float(str(counted()["first"])) <= 24


def test_what_is_remembered_is_bounded() -> None:
    """A server that meets one new batch shape after another does not grow for ever."""
    from attnctl.plans.layers import REMEMBERED

    kept = counted()["kept"]
    assert isinstance(kept, int)
    assert 0 < kept <= REMEMBERED
