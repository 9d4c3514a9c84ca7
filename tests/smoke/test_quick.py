"""What a quick run leaves out, and what it never does."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.ops.case import split_case
from attnctl.ops.catalog import all_cases, case_of
from attnctl.registry import load
from attnctl.smoke.planning import Plan, plan, runnable_backends
from attnctl.smoke.quick import marks, phase, quick, told
from tests import machine_factory as box

REGISTRY = load()
MACHINE = box.cpu(packages=("torch", "triton"))
WHOLE = [plan(one, MACHINE, all_cases()) for one in runnable_backends(REGISTRY)]
QUICK = {one.backend: one for one in quick(WHOLE)}
PHASES = {"prefill", "chunked", "speculative", "decode"}

# backend -> least cases of a quick run on a processor without a GPU
LEAST = {
    "CPU_ATTN": 48,
    "CPU_MLA": 35,
    "CPU_MLA_SPARSE": 35,
    "FLEX_ATTENTION": 42,
    "GDN_ATTN": 20,
    "LINEAR_ATTN": 18,
    "MAMBA1_ATTN": 18,
    "MAMBA2_ATTN": 20,
    "SHORT_CONV_ATTN": 20,
    "TRITON_ATTN": 12,
    "TRITON_ATTN_DIFFKV": 7,
    "TRITON_MLA": 25,
    "TRITON_MLA_SPARSE": 18,
    "ROCM_AITER_UNIFIED_ATTN": 10,
    "XPU_MLA_SPARSE": 14,
}


def test_each_backend_keeps_at_least_so_many_cases() -> None:
    """A backend that loses its quick cases shows here; so does a new one."""
    ran = {one.backend: len(QUICK[one.backend].runnable) for one in WHOLE if one.runnable}
    assert ran.keys() == LEAST.keys()
    assert {name: count for name, count in ran.items() if count < LEAST[name]} == {}


@pytest.mark.parametrize("name", LEAST)
def test_a_quick_run_is_a_part_of_the_whole_in_its_order(name: str) -> None:
    """No case of its own, none twice; nothing that was refused is forgotten."""
    (whole,) = (one for one in WHOLE if one.backend == name)
    kept = QUICK[name]
    assert [text for text in whole.runnable if text in kept.runnable] == list(kept.runnable)
    assert len(kept.runnable) < len(whole.runnable)
    assert kept.refused == whole.refused


@pytest.mark.parametrize("name", LEAST)
def test_each_backend_meets_every_phase_that_it_has_cases_of(name: str) -> None:
    """Of each operation, whoever shares its kernels, with NaN behind masks where it takes such."""
    (whole,) = (one for one in WHOLE if one.backend == name)
    wanted = {m for text in whole.runnable for m in told(text).marks if m[1] in ("phase", "poison")}
    assert wanted <= {m for text in QUICK[name].runnable for m in told(text).marks}
    paged = {"TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN", "CPU_ATTN", "FLEX_ATTENTION"}
    if name in paged:
        assert ("paged", "poison", "True") in wanted
        assert {value for op, kind, value in wanted if kind == "phase" and op == "paged"} >= PHASES


def test_interpreted_backends_meet_every_kind_of_option_between_them() -> None:
    """Those that run natively meet each alone."""
    for level in ("interpret", "device"):
        groups: list[list[Plan]] = [[one for one in WHOLE if one.level == level and one.runnable]]
        if level == "device":
            groups = [[one] for one in groups[0]]
        for group in groups:
            wanted = {m for one in group for text in one.runnable for m in told(text).marks}
            kept = [text for one in group for text in QUICK[one.backend].runnable]
            assert wanted == {mark for text in kept for mark in told(text).marks}


def test_interpreted_backends_share_the_options_out() -> None:
    """Most of the cases that two backends with the same kernels take are tried by one."""
    first, second = (set(QUICK[n].runnable) for n in ("TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN"))
    assert len(first & second) <= 4
    alone = quick([one for one in WHOLE if one.backend == "ROCM_AITER_UNIFIED_ATTN"])
    assert len(alone[0].runnable) > len(second)


def test_native_backends_keep_every_fourth_case_too() -> None:
    """They cost little, and edges of lengths lie there."""
    for one in WHOLE:
        if one.level == "device" and one.runnable:
            assert set(one.runnable[::4]) <= set(QUICK[one.backend].runnable)


def test_a_quick_run_of_one_plain_case_is_that_case() -> None:
    """A plan whose only case has nothing special is not emptied; one without cases stays so."""
    one = next(x for x in WHOLE if x.backend == "TRITON_MLA")
    single = msgspec.structs.replace(one, runnable=("merge_states()",))
    empty = msgspec.structs.replace(one, runnable=())
    assert [x.runnable for x in quick([single, empty])] == [("merge_states()",), ()]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("paged(queries=3+1,contexts=3+1)", "prefill"),
        ("paged(queries=3+0,contexts=3+9)", "prefill"),
        ("paged(queries=30+1,contexts=39+1)", "chunked"),
        ("paged(queries=8+1,contexts=39+1)", "speculative"),
        ("paged(queries=1+1,contexts=39+1)", "decode"),
        ("paged(queries=0+0,contexts=39+0)", "nothing"),
        ("paged(queries=,contexts=)", "nothing"),
    ],
)
def test_a_phase_is_read_from_the_lengths(text: str, named: str) -> None:
    """Sequences without query tokens say nothing."""
    assert phase(case_of(*split_case(text))) == named


def test_marks_name_what_a_case_tries() -> None:
    """A number by how it lies to the default, anything else by its value."""
    text = "paged(queries=0+4,contexts=0+9,heads=7,kv_heads=1,window=5,layout=HND,page=32)"
    assert set(marks(case_of(*split_case(text)))) == {
        ("paged", "phase", "speculative"),
        ("paged", "lengths", "zero"),
        ("paged", "heads", "less"),
        ("paged", "heads", "uneven"),
        ("paged", "kv_heads", "less"),
        ("paged", "window", "more"),
        ("paged", "window", "uneven"),
        ("paged", "layout", "HND"),
        ("paged", "page", "more"),
    }
