"""Ranks that do not divide: an error in the decision, and the rest of the answer stands."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.engines import vllm
from attnctl.engines.report import engine_report
from attnctl.engines.values import EngineReport
from attnctl.layer import Options
from attnctl.machine import Gpu, Machine, Vendor
from attnctl.model.spec import LayerGroup, ModelSpec, State
from attnctl.registry import Registry
from attnctl.select import select_model
from tests.engines.invented import FULL, GDN, HYBRID, SPARSE, X86, nvidia

EIGHT = msgspec.structs.replace(FULL, num_heads=32, num_kv_heads=8, head_size=128)
LINEAR = LayerGroup(kind="linear", layers=(0,), state=State(type="linear", num_heads=6, head_dim=8))


def asked(spec: ModelSpec, machine: Machine, tp: int = 1) -> EngineReport:
    options = Options(tp=tp)
    decisions = select_model(spec, machine, Registry((), ()), options)
    return engine_report("0.33.0", spec, machine, options, decisions)


@pytest.mark.parametrize(
    ("group", "tp", "says"),
    [
        (EIGHT, 3, "32 query heads do not divide by --tp 3"),
        (EIGHT, 64, "32 query heads do not divide by --tp 64"),
        (msgspec.structs.replace(EIGHT, num_heads=36, num_kv_heads=4), 6, "4 KV heads and --tp 6"),
        (msgspec.structs.replace(EIGHT, num_heads=30, num_kv_heads=10), 3, "10 KV heads"),
        (GDN, 3, "= 8192 does not divide by --tp 3"),
        (SPARSE, 3, "128 query heads"),
        (EIGHT, 1, None),
        (EIGHT, 8, None),
        (EIGHT, 16, None),
        (EIGHT, 32, None),
        (SPARSE, 128, None),
        (LINEAR, 4, None),
    ],
)
def test_a_group_that_does_not_divide_is_an_error(
    group: LayerGroup, tp: int, says: str | None
) -> None:
    """Query heads divide by the ranks, KV heads divide or repeat, linear states are cut short."""
    spec = ModelSpec(model_type="invented", groups=(group,), dtype="bfloat16")
    found = vllm.explain(nvidia((9, 0)), group, Options(tp=tp), spec)
    assert (found.error is None) == (says is None)
    assert says is None or says in str(found.error)
    assert (found.pick is None) == (says is not None)
    assert (found.flags == {}) or says is None


def test_a_plan_for_ranks_that_do_not_divide_is_an_error() -> None:
    """Attention or states: the plan says which, and has no sizes."""
    for tp in (3, 5):
        plan = vllm.hybrid_plan(nvidia((9, 0)), HYBRID, Options(tp=tp))
        assert f"--tp {tp}" in str(plan.error)
        assert (plan.block_size, plan.tensors) == (None, ())


def test_the_report_of_such_a_model_is_a_no_with_every_group() -> None:
    """Nothing is raised; each group has its error and nothing is there to be pinned."""
    found = asked(HYBRID, nvidia((9, 0)), tp=3)
    assert [group.pick for group in found.groups] == [None, None]
    assert len(found.errors) == 2
    assert (found.answered, found.arguments) == (False, ())


def test_a_plan_that_fails_is_a_no_though_every_group_has_a_pick() -> None:
    """The groups agree to a backend each, and no block size holds a state in them."""
    found = asked(HYBRID, nvidia((9, 0)))
    assert found.answered
    assert found.plan is not None
    plan = msgspec.structs.replace(found.plan, error="ValueError: no block size")
    failed = msgspec.structs.replace(found, plan=plan)
    assert failed.errors == ("ValueError: no block size",)
    assert not failed.answered


def test_a_fact_that_is_missing_is_the_error_of_its_group() -> None:
    """A width that nobody states, or a GPU without a capability, costs no other answer."""
    blank = LayerGroup(kind="full", layers=(9,))
    spec = msgspec.structs.replace(HYBRID, groups=(*HYBRID.groups, blank))
    found = asked(spec, nvidia((9, 0)))
    assert [group.pick for group in found.groups] == ["GDN_ATTN", "FLASH_ATTN", None]
    assert "head_size is not known" in str(found.groups[2].error)
    gpu = Gpu(index=0, name="Invented")
    box = Machine(name="box", nvidia=Vendor(status="ok", gpus=(gpu,)), cpu=X86)
    found = asked(HYBRID, box)
    assert "Invented has no compute capability" in found.errors[0]
