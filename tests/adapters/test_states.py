"""Rival kernels of the state backends against their packages' signatures and the specification."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.exits import InputError
from attnctl.kernels.states.runtime import StateAttention
from attnctl.ops.state_cases import PHASES, Value, case
from attnctl.ops.state_trial import try_case
from attnctl.registry import load as load_registry
from attnctl.runtime import open_backend
from tests.adapters import state_fakes as packages
from tests.adapters.fakes import loader

UNVERIFIED: dict[str, dict[str, Value]] = {
    "prefill": PHASES["prefill"],
    "decode": PHASES["decode"],
    "after": {**PHASES["after"], "queries": "1+5"},
    "padding": {"queries": "1+0+9", "padding": 2},
    "padded_decode": {"queries": "1+0+1", "initial": "mixed", "padding": 1},
    "apart": {"queries": "9+1", "fused": True, "apart": True},
}
LOADS = {
    "fla": loader(
        fla__ops__gated_delta_rule=packages.fla("gated_delta_rule"),
        fla__ops__kda=packages.fla("kda"),
        fla__ops__simple_gla=packages.fla("simple_gla"),
    ),
    "flashinfer": loader(flashinfer__gdn_prefill=packages.flashinfer()),
    "mamba_ssm": loader(
        mamba_ssm__ops__triton__selective_state_update=packages.mamba_update(),
        mamba_ssm__ops__triton__ssd_combined=packages.mamba_chunks(),
        mamba_ssm__ops__selective_scan_interface=packages.mamba_scan(),
    ),
    "causal_conv1d": loader(causal_conv1d=packages.causal_conv1d()),
}


def runtime(backend: str, kernel: str, load: Any = None) -> StateAttention:
    """The backend on a rival whose package the fakes stand for."""
    found: StateAttention = open_backend(backend, kernel=kernel)
    return found.with_knobs({}, kernel, load or LOADS[kernel])


def faults(backend: str, kernel: str, op: str, *phases: str, **changes: Value) -> dict[str, str]:
    """Phases that were not right, with why."""
    found = {}
    for phase in phases or UNVERIFIED:
        one = case(op, **{**UNVERIFIED[phase], **changes})
        comparison = try_case(runtime(backend, kernel), one)
        if comparison.verdict != "pass":
            found[phase] = f"{comparison.verdict}: {comparison.detail}"
    return found


def test_fla_is_right_with_a_gate_per_head_and_per_channel() -> None:
    """Keys lie first in its state, and the gate is computed before the call."""
    assert faults("GDN_ATTN", "fla", "gdn") == {}
    assert faults("GDN_ATTN", "fla", "gdn", gate=True) == {}
    assert faults("GDN_ATTN", "fla", "gdn", kda=True, k_heads=4, gate=True) == {}


def test_fla_takes_float32_token_by_token() -> None:
    """Its chunked kernels refuse float32, and are not asked."""
    assert faults("GDN_ATTN", "fla", "gdn", dtype="float32") == {}


def test_fla_is_right_on_lightning_attention() -> None:
    """A slope is a constant decay per head."""
    assert faults("LINEAR_ATTN", "fla", "linear", scale=0.125) == {}


def test_flashinfer_is_right_at_its_width() -> None:
    """Its decay is a factor, and it wants dense tensors."""
    widths: dict[str, Value] = {"head_k_dim": 128, "head_v_dim": 128}
    assert faults("GDN_ATTN", "flashinfer", "gdn", **widths) == {}
    assert faults("GDN_ATTN", "flashinfer", "gdn", gate=True, **widths) == {}


@pytest.mark.parametrize(
    "changes",
    [{}, {"z": True}, {"d": "channel"}, {"d": "off", "softplus": False}, {"groups": 2}],
)
def test_mamba_ssm_is_right_on_mamba2(changes: dict[str, Value]) -> None:
    """Constants are spread over a head's width for single tokens, and are not for chunks."""
    assert faults("MAMBA2_ATTN", "mamba_ssm", "mamba2", **changes) == {}


def test_mamba_ssm_takes_limits_of_dt_in_chunks_alone() -> None:
    """Single tokens with limits are refused in a sentence."""
    assert faults("MAMBA2_ATTN", "mamba_ssm", "mamba2", "prefill", limits=True) == {}
    with pytest.raises(InputError, match="has no limits of dt"):
        faults("MAMBA2_ATTN", "mamba_ssm", "mamba2", "decode", limits=True)


def test_mamba_ssm_is_right_on_mamba1() -> None:
    """Single tokens with a state, and prompts without one."""
    assert faults("MAMBA1_ATTN", "mamba_ssm", "mamba1", "decode") == {}
    assert faults("MAMBA1_ATTN", "mamba_ssm", "mamba1", "prefill", "apart", initial="fresh") == {}
    with pytest.raises(InputError, match="starts from no state"):
        faults("MAMBA1_ATTN", "mamba_ssm", "mamba1", "prefill")


def test_causal_conv1d_is_right_without_drafts() -> None:
    """Its states are those of the pool with channels first."""
    # its states have the input's dtype
    stored = {"state_dtype": "bfloat16"}
    phases = [phase for phase in UNVERIFIED if phase != "after"]
    for width in (2, 3, 4):
        assert faults("SHORT_CONV_ATTN", "causal_conv1d", "short_conv", *phases, width=width,
                      **stored) == {}  # fmt: skip
    with pytest.raises(InputError, match="no columns beyond the width"):
        faults("SHORT_CONV_ATTN", "causal_conv1d", "short_conv", "prefill", columns=9)


@pytest.mark.parametrize(
    ("backend", "kernel", "op"),
    [("GDN_ATTN", "fla", "gdn"), ("MAMBA2_ATTN", "mamba_ssm", "mamba2")],
)
def test_rows_under_verification_are_refused(backend: str, kernel: str, op: str) -> None:
    """These packages keep the last state of a row alone: no silent fall back to ours."""
    with pytest.raises(InputError, match="not one for each drafted token"):
        try_case(runtime(backend, kernel), case(op, **PHASES["verify"]))


def test_a_missing_package_is_named() -> None:
    """The sentence has the module and the way out."""
    with pytest.raises(InputError, match=r"fla\.ops\.gated_delta_rule cannot be imported"):
        try_case(runtime("GDN_ATTN", "fla", loader()), case("gdn"))


def test_a_kernel_that_a_backend_has_not_is_refused_with_those_it_has() -> None:
    """By open_backend and by with_knobs."""
    with pytest.raises(InputError, match="its rival kernels are fla, flashinfer"):
        open_backend("GDN_ATTN", kernel="mamba_ssm")
    with pytest.raises(InputError, match="it has no rival kernels"):
        open_backend("CPU_ATTN", kernel="fla")
    with pytest.raises(InputError, match="no knob 'tiles'"):
        open_backend("GDN_ATTN").with_knobs({"tiles": 512})
    with pytest.raises(InputError, match="fla has no knob 'tile'"):
        open_backend("GDN_ATTN").with_knobs({"tile": 512}, "fla")
    with pytest.raises(InputError, match="no kernel 'fa3'; its kernels are fla"):
        open_backend("LINEAR_ATTN").with_knobs({}, "fa3")


def test_declared_rivals_are_those_that_the_runtimes_have() -> None:
    """Each has a rule about its package, and a module that can be opened."""
    for backend in load_registry().backends:
        for rival in backend.rivals:
            assert any(rival.name in rule.packages for rule in rival.rules)
            found = open_backend(backend.name, kernel=rival.name)
            assert set(found.rivals()) <= {one.name for one in backend.rivals}
