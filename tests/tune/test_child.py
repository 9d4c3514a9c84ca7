"""The child that runs kernels: planted faults are caught, blamed and survived."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from attnctl.layer import Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.profile.document import shape_of
from attnctl.tune import bench_lines
from attnctl.tune.bench import WorkerBench
from attnctl.tune.exchange import Candidate, Times, Verdict
from attnctl.tune.finals import Measured
from attnctl.tune.search import Judge, tune_point
from attnctl.tune.settings import Knobs
from attnctl.tune.tasks import Rival, Task
from attnctl.tune.worker import Server
from attnctl.tune.workload import Load

DECODE = Load(phase="decode", batch=2, context=40)
PREFILL = Load(phase="prefill", batch=1, context=40, query=40)
NO_KNOBS: Knobs = {}

pytestmark = pytest.mark.usefixtures("plugins")


def task(load: Load, *backends: str, page: int = 16, window: int | None = 7) -> Task:
    kind = "full" if window is None else "sliding"
    group = LayerGroup(
        kind=kind,
        layers=(0,),
        num_heads=4,
        num_kv_heads=2,
        head_size=32,
        window=window,
    )
    layer = layer_of(ModelSpec(model_type="x", groups=(group,), dtype="float32"), group, Options())
    rivals = tuple(Rival(backend=name, page=page) for name in backends)
    return Task(shape=shape_of(layer), layer=layer, load=load, rivals=rivals)


def found_by(one: Task, limit_s: float = 60.0) -> Measured:
    with WorkerBench("cpu", limit_s=limit_s) as bench:
        return tune_point(one, bench, Judge())


def test_wrong_crashing_and_raising_backends_are_recorded_and_the_sound_one_is_timed() -> None:
    """Each with its own reason; the run ends well."""
    names = ("OFF_BY_ONE", "LEAVES_NAN", "OVERRUNS", "RAISES", "CRASHES", "PRINTS", "SOUND")
    found = found_by(task(DECODE, *names))
    why = {one.backend: (one.why, one.detail) for one in found.out}
    assert {name: why[name][0] for name in why} == {
        "OFF_BY_ONE": "wrong",
        "LEAVES_NAN": "wrong",
        "OVERRUNS": "wrong",
        "RAISES": "error",
        "CRASHES": "crashed",
    }
    assert "over budget" in why["OFF_BY_ONE"][1]
    assert "not written" in why["LEAVES_NAN"][1]
    assert "after the tensor" in why["OVERRUNS"][1]
    assert "no such kernel" in why["RAISES"][1]
    assert "SIGSEGV" in why["CRASHES"][1]
    assert {one.backend for one in found.finals} == {"PRINTS", "SOUND"}
    assert all(one.median_us > 0 and one.runs >= 3 for one in found.finals)


def test_a_hang_costs_its_limit_and_nothing_else() -> None:
    """The child is ended and the next backend gets a new one."""
    found = found_by(task(PREFILL, "HANGS", "SOUND"), limit_s=8.0)
    (out,) = found.out
    assert (out.backend, out.why) == ("HANGS", "timeout")
    assert [one.backend for one in found.finals] == ["SOUND"]


def test_judges_side_by_side_say_the_same_as_one() -> None:
    """Three children share the work; a crash in one leaves the others'."""
    one = task(DECODE, "CRASHES")
    names = ("SOUND", "OFF_BY_ONE", "CRASHES", "RAISES", "PRINTS")
    candidates = [Candidate(backend=name, page=16) for name in names]
    with WorkerBench("cpu", jobs=2) as bench:
        verdicts = list(bench.check(one.work, candidates))
    assert {one.backend: verdict.fault for one, verdict in verdicts} == {
        "SOUND": None,
        "OFF_BY_ONE": "wrong",
        "CRASHES": "crashed",
        "RAISES": "error",
        "PRINTS": None,
    }


def test_a_crash_while_timed_is_blamed_on_its_backend() -> None:
    """Not judged before, so that it dies at its own size: the others' times stay."""
    one = task(DECODE, "SOUND", "CRASHES", "PRINTS")
    candidates = [Candidate(backend=name, page=16) for name in ("SOUND", "CRASHES", "PRINTS")]
    with WorkerBench("cpu") as bench:
        found = bench.time(one.work, candidates, 3)
    times, faults = found.times_us, found.faults
    assert {key.partition("/")[0] for key in times} == {"SOUND", "PRINTS"}
    assert [verdict.fault for verdict in faults.values()] == ["crashed"]
    assert all(len(samples) == 3 for samples in times.values())


def test_triton_settings_are_right_in_the_interpreter() -> None:
    """The default and settings of either block size, cut or not, by either kernel."""
    with WorkerBench("interpret", limit_s=120.0) as bench:
        for load, window in ((DECODE, 7), (PREFILL, None)):
            one = task(load, "TRITON_ATTN", window=window)
            work = msgspec.structs.replace(one.work, page=16)
            settings = bench.settings(work, "TRITON_ATTN")
            assert not isinstance(settings, Verdict)
            assert len(settings) >= 20
            tried = [candidate(knobs=one.knobs) for one in (settings[0], settings[3], settings[-1])]
            judged = [(v.fault, v.detail) for _, v in bench.check(work, tried)]
            assert judged == [(None, "")] * 3
        wrong = candidate(knobs={"decode.key": 64})
        ((_, verdict),) = bench.check(work, [wrong])
        # a profile of another version may name one
        assert verdict.fault == "error"
        assert "no knob 'decode.key'" in verdict.detail


def candidate(backend: str = "TRITON_ATTN", knobs: Knobs = NO_KNOBS) -> Candidate:
    return Candidate(backend=backend, knobs=knobs, page=int(knobs.get("block_size", 16)))


class Following:
    """A sampler that writes its name down when it is asked for a sample."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name, self._order = name, order

    clock, host_us = "events", 0.0

    def sample_us(self) -> float:
        self._order.append(self._name)
        return 1.0


def test_no_candidate_always_runs_after_the_same_one() -> None:
    """What one leaves in the caches of the processor must not be another's time."""
    candidates = tuple(Candidate(backend=name, page=16) for name in "abcd")
    answers: list[bench_lines.Answer] = []
    server = Server("cpu", answers.append)
    work = task(DECODE, "a").work
    order: list[str] = []
    server.turns.begin(work)
    server.turns._samplers = {one.key: Following(one.backend, order) for one in candidates}
    server.serve(bench_lines.AskTime(work, candidates, 30))
    assert len(order) == 120
    assert all(sorted(order[turn : turn + 4]) == list("abcd") for turn in range(0, 120, 4))
    before: dict[str, set[str]] = {}
    for earlier, later in pairwise(order):
        before.setdefault(later, set()).add(earlier)
    assert all(before[name] >= set("abcd") - {name} for name in "abcd")
    times = answers[-1]
    assert isinstance(times, Times)
    assert {len(found) for found in times.times_us.values()} == {30}
