"""Caches that a backend's rules take, as serving engines do, and that the kernel here does not."""

from __future__ import annotations

import pytest

from attnctl.ops.catalog import case_of
from attnctl.registry import load
from attnctl.smoke.planning import plan
from attnctl.support.table import matrix
from tests import layer_factory
from tests import machine_factory as box

REGISTRY = load()
HOPPER = box.cuda(9, packages=("torch", "triton"))
PLANNED = ("fp8_per_token_head", "int4_per_token_head")


@pytest.mark.parametrize("stored", [*PLANNED, "int8_per_token_head", "fp8_e4m3"])
def test_such_a_cache_is_picked_and_said_not_to_run(stored: str) -> None:
    """The pick is vLLM's; int8 with a scale a token and head is written."""
    decision = layer_factory.decide(
        layer_factory.group(), HOPPER, kv_cache_dtype=stored, backend=(("*", "TRITON_ATTN"),)
    )
    assert decision.pick is not None
    candidate = layer_factory.candidate(decision, "TRITON_ATTN")
    assert candidate.ok
    if stored in PLANNED:
        note = f"not runnable yet: its kernel for a cache in {stored} is planned"
        assert (decision.pick.runnable, decision.pick.note) == (False, note)
        assert candidate.kernel == "planned"
    else:
        assert (decision.pick.runnable, decision.pick.note) == (True, "")
        assert candidate.kernel == "bundled"


@pytest.mark.parametrize("stored", PLANNED)
def test_smoke_refuses_such_a_case_with_the_reason(stored: str) -> None:
    """Natively and in the interpreter; without that it would be an error of the case."""
    backend = REGISTRY.get("TRITON_ATTN")
    assert backend is not None
    one = case_of("paged", {"kv_cache_dtype": stored, "dtype": "bfloat16"})
    for machine in (HOPPER, box.cpu(packages=("torch", "triton"))):
        found = plan(backend, machine, [one])
        assert found.runnable == ()
        (trial,) = found.refused
        (reason,) = trial.reasons
        assert (trial.status, reason.code) == ("unsupported", "kernel")
        assert reason.wanted == f"a kernel for a cache in {stored}"


def test_the_support_table_says_which_kernels_are_planned() -> None:
    """Beside the cache dtypes that the rules take."""
    (row,) = (one for one in matrix(REGISTRY).rows if one.name == "TRITON_ATTN")
    assert row.kv_cache_dtypes.endswith(f"; the kernel for {' and '.join(PLANNED)} is planned")
