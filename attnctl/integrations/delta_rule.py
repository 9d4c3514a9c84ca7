"""The gated delta rule and the short convolution of transformers' layers, on attnctl's backends.

transformers calls them by the names of functions beside the layer's class. A layer that is attached
runs its own forward with those names bound to the functions below; its class stays as it is.
"""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.integrations.gradients import forward_only
from attnctl.ops.gdn import Gdn
from attnctl.ops.short_conv import WIDTHS, ShortConv
from attnctl.runtime import StateMetadata, open_backend

DELTA_RULE = "torch_chunk_gated_delta_rule"


def attach_delta_rule(model: torch.nn.Module) -> int:
    """Binds every layer of the gated delta rule to the library; how many there are."""
    count = 0
    for module in model.modules():
        forward = inspect.unwrap(type(module).forward)
        names = getattr(forward, "__globals__", {})
        if DELTA_RULE in names and DELTA_RULE in forward.__code__.co_names:
            module.forward = MethodType(_rebound(forward), module)
            count += 1
    return count


def _rebound(forward: Any) -> FunctionType:
    """The same function, in whose eyes the four names mean the library's functions."""
    names = {
        **forward.__globals__,
        DELTA_RULE: delta_rule,
        "torch_recurrent_gated_delta_rule": delta_rule,
        "causal_conv1d_fn": convolve,
        "causal_conv1d_update": convolve_step,
    }
    bound = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    bound.__kwdefaults__ = forward.__kwdefaults__
    return bound


def delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """[B, T, Hv, Dv] and the state [B, Hv, D, Dv], from query and key [B, T, Hk, D].

    g, beta: [B, T, Hv]. InputError: packed sequences.
    """
    if cu_seqlens is not None:
        raise InputError("attnctl: packed sequences are not taken here; pad them")
    batch, tokens, _, width = query.shape
    heads, width_v = value.shape[2:]
    shape = batch, heads, width_v, width
    state = torch.zeros(shape, dtype=torch.float32, device=query.device)
    if initial_state is not None:
        state.copy_(initial_state.transpose(2, 3))
    inputs = Gdn(
        q=query.flatten(0, 1),
        k=key.flatten(0, 1),
        v=value.flatten(0, 1),
        g=g.flatten(0, 1),
        beta=beta.flatten(0, 1),
        scale=width**-0.5,
        l2norm=use_qk_l2norm_in_kernel,
    )
    found = _run("GDN_ATTN", inputs, state, batch, tokens, initial_state is not None)
    last = state.transpose(2, 3) if output_final_state else None
    found = forward_only(found, query, key, value, g, beta)
    return found.unflatten(0, (batch, tokens)), last


def convolve(
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **others: Any,
) -> Tensor:
    """[B, C, T] convolved from nothing before it; weight: [C, W]."""
    batch, channels, _ = hidden_states.shape
    state = hidden_states.new_zeros(batch, weight.shape[1] - 1, channels)
    return _convolved(hidden_states, state, weight, bias, activation, False)


def convolve_step(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:
    """[B, C, T] convolved behind the tokens of conv_state [B, C, L], which moves on in place."""
    state = conv_state.transpose(1, 2).contiguous()
    found = _convolved(hidden_states, state, weight, bias, activation, True)
    conv_state.copy_(state.transpose(1, 2))
    return found


def _convolved(
    hidden_states: Tensor,
    state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    continued: bool,
) -> Tensor:
    if activation not in (None, "silu", "swish") or weight.shape[1] not in WIDTHS:
        raise InputError(
            f"attnctl: a convolution of width {weight.shape[1]} with {activation} is not computed; "
            f"widths {', '.join(map(str, WIDTHS))} are, with silu or nothing"
        )
    batch, _, tokens = hidden_states.shape
    inputs = ShortConv(
        x=hidden_states.transpose(1, 2).flatten(0, 1),
        weight=weight,
        bias=bias,
        activation="silu" if activation else None,
    )
    found = _run("SHORT_CONV_ATTN", inputs, state, batch, tokens, continued)
    found = forward_only(found, hidden_states, weight, bias)
    return found.unflatten(0, (batch, tokens)).transpose(1, 2)


def _run(
    name: str, inputs: Gdn | ShortConv, state: Tensor, batch: int, tokens: int, continued: bool
) -> Tensor:
    """The backend's forward: sequence b of `tokens` tokens in slot b, states in place."""
    device = state.device
    metadata = StateMetadata(
        query_start_loc=torch.arange(
            0, (batch + 1) * tokens, tokens, dtype=torch.int32, device=device
        ),
        state_indices=torch.arange(batch, dtype=torch.int32, device=device)[:, None],
        has_initial_state=torch.full((batch,), continued, dtype=torch.bool, device=device),
        max_query_len=tokens,
    )
    with torch.no_grad():
        found: Tensor = open_backend(name).forward(inputs, state, metadata)
    return found
