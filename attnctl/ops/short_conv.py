"""The causal depthwise convolution of state-space layers: the specification, in plain torch.

Per channel with W taps: y[t] = bias + sum over i of weight[i] x[t - (W - 1) + i], then silu or
nothing. Tokens before the sequence come from the state: [L, C], L >= W - 1 + K, K the greatest
number of drafts. Its column L - 1 - K is the token before this batch's first; earlier tokens lie
before it, so that a longer state is read from its last columns. Every step shifts the new tokens
in: afterwards the last one lies in column L - 1 - K. In verification the *first* one lies there and
the drafts follow it; reading then starts from column L - 1 - K + num_accepted - 1, which forgets
the rejected ones. Later columns stay as they are. One slot per sequence serves all K columns.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import silu

from attnctl.exits import InputError
from attnctl.runtime import StateMetadata

WIDTHS = (2, 3, 4)


class ShortConv(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of T tokens and the layer's constants.

    x: [T, C]. weight: [C, W], W one of WIDTHS. bias: [C] or None.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    activation: Literal["silu"] | None = None

    per_token: ClassVar[tuple[str, ...]] = ("x",)


def short_conv(
    inputs: ShortConv,
    state: Tensor,
    metadata: StateMetadata,
    *,
    out: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """out: [T, C]; states in place. state: [slots, L, C]. InputError: W or L is not supported."""
    check(inputs.weight.shape[1], state.shape[1], metadata.num_spec)
    x = inputs.x.to(dtype)
    if out is None:
        out = x.new_zeros(x.shape)
    starts = metadata.query_start_loc.tolist()
    slots = metadata.state_indices[:, 0].tolist()
    for b, has_state in enumerate(metadata.has_initial_state.tolist()):
        first, last = starts[b], starts[b + 1]
        if first == last or slots[b] < 0:
            continue
        columns = state[slots[b]]
        known = _history(columns.to(dtype), metadata, b) if has_state else None
        tokens = x[first:last]
        if known is None:
            known = x.new_zeros(columns.shape[0], x.shape[1])
        padded = torch.cat([known, tokens])
        out[first:last] = _convolve(padded, last - first, inputs, dtype).to(out.dtype)
        _shift_in(columns, padded, last - first, metadata, b)
    return out


def check(width: int, length: int, num_spec: int) -> None:
    """InputError where the taps or the state's columns are not what the operation takes."""
    if width not in WIDTHS:
        raise InputError(
            f"short_conv: the width must be one of 2, 3, 4; the weight has {width} taps. "
            "Pick a layer with a narrower convolution"
        )
    if length < width - 1 + num_spec:
        raise InputError(
            f"short_conv: the state must have at least {width - 1 + num_spec} columns "
            f"(width - 1 + drafts); it has {length}. Allocate it from state_shapes()"
        )


def _history(columns: Tensor, metadata: StateMetadata, row: int) -> Tensor:
    """The tokens before this batch's, oldest first, as many as the state has kept."""
    accepted = 1 if metadata.num_accepted is None else int(metadata.num_accepted[row])
    return columns[: columns.shape[0] - metadata.num_spec + accepted - 1]


def _convolve(padded: Tensor, count: int, inputs: ShortConv, dtype: torch.dtype) -> Tensor:
    """The last `count` tokens' outputs; `padded` begins with the history."""
    weight = inputs.weight.to(dtype)
    width = weight.shape[1]
    windows = padded[padded.shape[0] - count - width + 1 :].unfold(0, width, 1)
    y = torch.einsum("tcw,cw->tc", windows, weight)
    if inputs.bias is not None:
        y = y + inputs.bias.to(dtype)
    return silu(y) if inputs.activation == "silu" else y


def _shift_in(
    columns: Tensor, padded: Tensor, count: int, metadata: StateMetadata, row: int
) -> None:
    """Leaves the newest tokens in the state: up to the anchor, or with the drafts behind it."""
    verified = metadata.speculative is not None and bool(metadata.speculative[row])
    kept = columns.shape[0] - metadata.num_spec + (count - 1 if verified else 0)
    columns[:kept] = padded[padded.shape[0] - kept :].to(columns.dtype)
