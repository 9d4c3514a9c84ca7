"""Stand-ins for state-space packages: the real signatures, and the numbers of the specification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.gdn import Gdn, gdn
from attnctl.ops.linear import Linear, linear
from attnctl.ops.mamba1 import Mamba1, mamba1
from attnctl.ops.mamba2 import Mamba2, mamba2
from attnctl.ops.short_conv import ShortConv, short_conv
from attnctl.runtime import StateMetadata
from tests.adapters.strict import strict

Arguments = dict[str, Any]


def rows(starts: Tensor) -> StateMetadata:
    """A batch whose row b has slot b, and a state."""
    count = starts.shape[0] - 1
    return StateMetadata(
        query_start_loc=starts,
        state_indices=torch.arange(count)[:, None],
        has_initial_state=torch.ones(count, dtype=torch.bool),
        max_query_len=int(starts.diff().max()),
    )


def fla(name: str) -> Any:
    """One of fla.ops' modules: the chunked and the recurrent function, keys first in the state."""

    def compute(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["output_final_state"]
        assert a["cu_seqlens"].dtype == torch.int64
        assert a["initial_state"].dtype == torch.float32
        assert a["q"].shape[0] == 1, "the batch size is 1 with cu_seqlens"
        q, k, v = (a[part][0] for part in "qkv")
        state = a["initial_state"].clone()
        batch = rows(a["cu_seqlens"])
        if name == "simple_gla":
            one = Linear(q=q, k=k, v=v, slope=-a["g_gamma"], scale=a["scale"])
            out = linear(one, state, batch, dtype=torch.float32)
            return out[None], state
        assert (a["g"].dim() == 4) == (name == "kda")
        assert a["g"].dtype == torch.float32
        inputs = Gdn(
            q=q, k=k, v=v, g=a["g"][0], beta=a["beta"][0], scale=a["scale"],
            l2norm=a["use_qk_l2norm_in_kernel"],
        )  # fmt: skip
        state = state.mT.contiguous()
        return gdn(inputs, state, batch, dtype=torch.float32)[None], state.mT

    def chunked(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["q"].dtype != torch.float32, "chunked kernels do not take float32"
        return compute(a)

    recurrent = f"fused_recurrent_{name}"
    return SimpleNamespace(
        **{
            f"chunk_{name}": strict("fla-core", f"{name}/chunk.py", f"chunk_{name}", chunked),
            recurrent: strict("fla-core", f"{name}/fused_recurrent.py", recurrent, compute),
        }
    )


def flashinfer() -> Any:
    """flashinfer.gdn_prefill: decays that are no logarithms, dense tensors, states V first."""

    def compute(a: Arguments) -> tuple[Tensor, Tensor]:
        assert all(a[name].is_contiguous() for name in ("q", "k", "v", "initial_state"))
        assert a["g"].dtype == a["beta"].dtype == torch.float32
        assert a["output_final_state"]
        assert a["output_state"].shape == a["initial_state"].shape
        inputs = Gdn(
            q=a["q"], k=a["k"], v=a["v"], g=a["g"].log(), beta=a["beta"], scale=a["scale"],
            l2norm=a["use_qk_l2norm_in_kernel"],
        )  # fmt: skip
        a["output_state"].copy_(a["initial_state"])
        out = gdn(inputs, a["output_state"], rows(a["cu_seqlens"]), dtype=torch.float32)
        return out, a["output_state"]

    name = "chunk_gated_delta_rule"
    function = strict("flashinfer-python", "flashinfer/gdn_prefill.py", name, compute)
    return SimpleNamespace(chunk_gated_delta_rule=function)


def mamba_update() -> Any:
    """mamba_ssm's selective_state_update, of both Mambas; the state in place."""

    def compute(a: Arguments) -> Tensor:
        x, count = a["x"], a["x"].shape[0]
        batch = rows(torch.arange(count + 1))
        named = {"z": a.get("z"), "softplus": a["dt_softplus"]}
        if x.dim() == 2:
            one = Mamba1(
                x=x, dt=a["dt"], b=a["B"], c=a["C"], a=a["A"], d=a["D"], dt_bias=a["dt_bias"],
                **named,
            )  # fmt: skip
            return mamba1(one, a["state"], batch, dtype=torch.float32).to(x.dtype)
        assert a["dt"].shape == x.shape
        assert a["A"].shape == a["state"].shape[1:]
        for name in ("D", "dt_bias"):
            assert a[name] is None or a[name].shape == x.shape[1:]
        bias = None if a["dt_bias"] is None else a["dt_bias"][:, 0]
        two = Mamba2(
            x=x, dt=a["dt"][:, :, 0], b=a["B"], c=a["C"], a=a["A"][:, 0, 0], d=a["D"],
            dt_bias=bias, **named,
        )  # fmt: skip
        return mamba2(two, a["state"], batch, dtype=torch.float32).to(x.dtype)

    file = "triton/selective_state_update.py"
    function = strict("mamba-ssm", file, "selective_state_update", compute)
    return SimpleNamespace(selective_state_update=function)


def mamba_chunks() -> Any:
    """mamba_ssm's mamba_chunk_scan_combined on one sequence."""

    def compute(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["return_final_states"]
        state = a["initial_states"].clone()
        one = Mamba2(
            x=a["x"][0], dt=a["dt"][0], b=a["B"][0], c=a["C"][0], a=a["A"], d=a["D"],
            z=None if a["z"] is None else a["z"][0], dt_bias=a["dt_bias"],
            softplus=a["dt_softplus"], dt_limit=a["dt_limit"],
        )  # fmt: skip
        batch = rows(torch.tensor([0, one.x.shape[0]]))
        return mamba2(one, state, batch, dtype=torch.float32)[None], state

    name = "mamba_chunk_scan_combined"
    function = strict("mamba-ssm", "triton/ssd_combined.py", name, compute)
    return SimpleNamespace(mamba_chunk_scan_combined=function)


def mamba_scan() -> Any:
    """mamba_ssm's selective_scan_fn: channels first, no state before."""

    def compute(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["return_last_state"]
        u, z = a["u"][0].mT, a["z"]
        one = Mamba1(
            x=u, dt=a["delta"][0].mT, b=a["B"][0].mT, c=a["C"][0].mT, a=a["A"], d=a["D"],
            z=None if z is None else z[0].mT, dt_bias=a["delta_bias"],
            softplus=a["delta_softplus"],
        )  # fmt: skip
        state = torch.zeros(1, *a["A"].shape)
        out = mamba1(one, state, rows(torch.tensor([0, u.shape[0]])), dtype=torch.float32)
        return out.mT[None], state

    file = "selective_scan_interface.py"
    return SimpleNamespace(
        selective_scan_fn=strict("mamba-ssm", file, "selective_scan_fn", compute)
    )


def causal_conv1d() -> Any:
    """causal_conv1d: channels second; states in place in one function, returned by the other."""

    def run(a: Arguments, x: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        assert state.dtype == x.dtype
        assert a["activation"] in (None, "silu")
        one = ShortConv(x=x, weight=a["weight"], bias=a["bias"], activation=a["activation"])
        pool = state.mT.contiguous()
        return short_conv(one, pool, rows(starts), dtype=torch.float32).to(x.dtype), pool.mT

    def update(a: Arguments) -> Tensor:
        out, state = run(a, a["x"], a["conv_state"], torch.arange(a["x"].shape[0] + 1))
        a["conv_state"].copy_(state)
        return out

    def whole(a: Arguments) -> tuple[Tensor, Tensor]:
        assert a["return_final_states"]
        assert a["x"].stride(1) == a["initial_states"].stride(1) == 1, "channels last"
        x = a["x"][0].mT
        out, state = run(a, x, a["initial_states"], torch.tensor([0, x.shape[0]]))
        return out.mT[None], state

    file = "causal_conv1d_interface.py"
    return SimpleNamespace(
        causal_conv1d_fn=strict("causal-conv1d", file, "causal_conv1d_fn", whole),
        causal_conv1d_update=strict("causal-conv1d", file, "causal_conv1d_update", update),
    )
