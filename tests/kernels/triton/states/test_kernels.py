"""State-space kernels in Triton's interpreter, tried as smoke tries them: in a child."""

from __future__ import annotations

import pytest

from attnctl.smoke.workers import try_cases

SMALL = {
    "GDN_ATTN": ("gdn", "k_heads=1,v_heads=2,head_k_dim=24,head_v_dim=40"),
    "MAMBA1_ATTN": ("mamba1", "channels=40,state_size=12"),
    "MAMBA2_ATTN": ("mamba2", "heads=2,head_dim=24,groups=1,state_size=20,z=true"),
    "SHORT_CONV_ATTN": ("short_conv", "channels=40"),
    "LINEAR_ATTN": ("linear", "heads=2,head_dim=24,head_v_dim=40"),
}
BATCHES = (
    "queries=9+1+0+3,padding=2,fused=true,apart=true",
    "queries=1+1+1,initial=all",
    "queries=4+2+1,initial=all,drafts=3,accepted=1+3+2",
    "queries=1+9,initial=all,drafts=3,accepted=4,verified=last,state_dtype=bfloat16",
)


@pytest.mark.parametrize("backend", SMALL)
def test_kernels_agree_with_the_specification(backend: str) -> None:
    """Odd widths, ragged rows, padding, strides, verification and what follows it."""
    op, widths = SMALL[backend]
    cases = [f"{op}({widths},{batch})" for batch in BATCHES]
    if op == "gdn":
        cases.append(f"{op}({widths.replace('k_heads=1', 'k_heads=2')},kda=true,gate=true)")
    trials = list(try_cases(backend, "interpret", cases, 120.0))
    assert [(t.status, t.detail) for t in trials] == [("pass", "")] * len(cases)
