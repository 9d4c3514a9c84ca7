"""Random arguments of each state-space operation over T tokens, as its case asks, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnctl.ops.case import Case
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv

DT_LIMITS = (0.01, 0.5)

Draw = Callable[..., Tensor]
"""torch.randn with a generator of its own."""


def gdn(case: Case, tokens: int, draw: Draw) -> Gdn:
    k_heads, v_heads = case.count("k_heads"), case.count("v_heads")
    width, width_v = case.count("head_k_dim"), case.count("head_v_dim")
    q, k = draw(tokens, k_heads, width), draw(tokens, k_heads, width)
    gates = (v_heads, width) if case["kda"] else (v_heads,)
    g = draw(tokens, *gates)
    if not case["l2norm"]:
        q, k = normalize(q, dim=-1), normalize(k, dim=-1)
    return Gdn(
        q=q,
        k=k,
        v=draw(tokens, v_heads, width_v),
        g=g if case["gate"] else -0.3 * g.abs(),
        beta=draw(tokens, v_heads).sigmoid(),
        scale=width**-0.5,
        l2norm=bool(case["l2norm"]),
        a_log=draw(v_heads) - 1.0 if case["gate"] else None,
        dt_bias=draw(*gates) if case["gate"] else None,
    )


def mamba1(case: Case, tokens: int, draw: Draw) -> Mamba1:
    channels, size = case.count("channels"), case.count("state_size")
    dt = draw(tokens, channels)
    return Mamba1(
        x=draw(tokens, channels),
        dt=dt if case["softplus"] else dt.abs() * 0.2,
        b=draw(tokens, size),
        c=draw(tokens, size),
        a=-(1.0 + torch.arange(size)).expand(channels, size).contiguous(),
        z=draw(tokens, channels) if case["z"] else None,
        d=draw(channels) if case["d"] else None,
        dt_bias=draw(channels) - 3.0 if case["softplus"] else None,
        softplus=bool(case["softplus"]),
    )


def mamba2(case: Case, tokens: int, draw: Draw) -> Mamba2:
    heads, width = case.count("heads"), case.count("head_dim")
    groups, size = case.count("groups"), case.count("state_size")
    skip = {"off": None, "head": draw(heads), "channel": draw(heads, width)}
    dt = draw(tokens, heads)
    return Mamba2(
        x=draw(tokens, heads, width),
        dt=dt if case["softplus"] else dt.abs() * 0.2,
        b=draw(tokens, groups, size),
        c=draw(tokens, groups, size),
        a=-(0.5 + 4.0 * torch.rand(heads, generator=torch.Generator().manual_seed(case.seed))),
        z=draw(tokens, heads, width) if case["z"] else None,
        d=skip[str(case["d"])],
        dt_bias=draw(heads) - 2.0 if case["softplus"] else None,
        softplus=bool(case["softplus"]),
        dt_limit=DT_LIMITS if case["limits"] else (0.0, float("inf")),
    )


def short_conv(case: Case, tokens: int, draw: Draw) -> ShortConv:
    channels, dtype = case.count("channels"), getattr(torch, str(case["weights"]))
    return ShortConv(
        x=draw(tokens, channels),
        weight=draw(channels, case.count("width")).to(dtype),
        bias=draw(channels).to(dtype) if case["bias"] else None,
        activation="silu" if case["silu"] else None,
    )


def linear(case: Case, tokens: int, draw: Draw) -> Linear:
    heads, width = case.count("heads"), case.count("head_dim")
    width_v = case.positive("head_v_dim") or width
    return Linear(
        q=draw(tokens, heads, width),
        k=draw(tokens, heads, width),
        v=draw(tokens, heads, width_v),
        slope=2.0 ** -(8.0 * torch.arange(1, heads + 1) / heads),
        scale=float(str(case["scale"])),
    )


MAKERS: dict[str, Callable[[Case, int, Draw], Any]] = {
    "gdn": gdn,
    "mamba1": mamba1,
    "mamba2": mamba2,
    "short_conv": short_conv,
    "linear": linear,
}
