"""In which order, and how many at once, smoke's workers run."""

from __future__ import annotations

import msgspec

from attnctl.findings import unmet
from attnctl.machine import Machine
from attnctl.machines import load
from attnctl.smoke.planning import Plan
from attnctl.smoke.streams import EXCLUSIVE, PART, Streams, as_planned, in_order, parts, streams_of
from attnctl.smoke.trials import Trial

REFUSED = Trial("refused", "unsupported")


def made(name: str, device: str, cases: int) -> Plan:
    level = "interpret" if device == "interpret" else "device"
    texts = tuple(f"{name}{number}" for number in range(cases))
    return Plan(name, device, level, texts, (REFUSED,))


PLANS = (
    made("a", "cpu", 9),
    made("b", "interpret", 2),
    made("c", "cuda", 5),
    made("d", "interpret", 8),
    made("e", "cuda:1", 7),
    made("f", "cpu", 10),
)


def test_a_processor_s_plans_go_longest_first_then_a_gpu_s() -> None:
    """Interpreted cases take longest; the place of each plan in the report stays with it."""
    side, gpu, alone = in_order(enumerate(PLANS))
    assert [one.backend for _, one in side] == ["d", "b", "f", "a"]
    assert [number for number, _ in side] == [3, 1, 5, 0]
    assert [(number, one.backend) for number, one in gpu] == [(4, "e"), (2, "c")]
    assert alone == []


def test_what_is_timed_runs_alone_and_whole() -> None:
    """Anything beside it would slow it."""
    plans = (*PLANS, made("g", "cuda", 2 * PART))
    side, gpu, alone = in_order(enumerate(plans), timed=("cuda", "cpu"))
    assert [one.backend for _, one in side] == ["d", "b"]
    assert [one.backend for _, one in gpu] == ["e"]
    assert [one.backend for _, one in alone] == ["a", "c", "f", "g"]
    assert alone[-1][1] is plans[-1]


def test_a_long_plan_of_a_gpu_is_shared_among_workers() -> None:
    """Each case is in one part, and what the rules refuse is told once."""
    for count, expected in ((0, [0]), (PART, [PART]), (2 * PART + 1, [PART, PART, 1])):
        whole = made("c", "cuda", count)
        found = tuple(parts(whole))
        assert [len(one.runnable) for one in found] == expected
        assert sum((one.runnable for one in found), ()) == whole.runnable
        assert [one.refused for one in found] == [(REFUSED,), *[()] * (len(expected) - 1)]


def test_trials_stand_in_the_plan_s_order_whichever_worker_was_first() -> None:
    """A case that was asked for twice stays so, and one that no plan names comes last."""
    plan = msgspec.structs.replace(made("c", "cuda", 3), runnable=("c0", "c1", "c1", "c2"))
    came = [Trial(text, "pass") for text in ("other", "c2", "c1", "c0", "c1")]
    assert [one.case for one in as_planned(plan, [*came, REFUSED])] == [
        "refused",
        "c0",
        "c1",
        "c1",
        "c2",
        "other",
    ]


def with_memory(free_gib: float | None, *codes: str) -> Machine:
    """An H200 with that much of its memory free, None: not known, and findings of these codes."""
    machine = load("h200")
    free = None if free_gib is None else int(free_gib * 2**30)
    kept = machine.nvidia.gpus[0].memory
    memory = msgspec.structs.replace(
        kept, free_bytes=free, total_bytes=None if free is None else kept.total_bytes
    )
    gpu = msgspec.structs.replace(machine.nvidia.gpus[0], memory=memory)
    vendor = msgspec.structs.replace(machine.nvidia, gpus=(gpu,))
    found = tuple(unmet(code, "one thing", "another") for code in codes)
    return msgspec.structs.replace(machine, nvidia=vendor, findings=found)


def test_as_many_workers_as_a_gpu_s_memory_bears() -> None:
    """Never none; one where it is not known, and where only one process may use the GPU."""
    assert streams_of(with_memory(139.5), 8) == Streams(side=8, gpu=8)
    assert streams_of(with_memory(40), 8) == Streams(side=8, gpu=2)
    assert streams_of(with_memory(40), 1) == Streams(side=1, gpu=1)
    assert streams_of(with_memory(3), 8) == Streams(side=8, gpu=1)
    assert streams_of(with_memory(None), 8) == Streams(side=8, gpu=1)
    assert streams_of(with_memory(139.5, EXCLUSIVE), 8) == Streams(side=8, gpu=1)
    assert streams_of(load("zen3"), 2) == Streams(side=2, gpu=1)
