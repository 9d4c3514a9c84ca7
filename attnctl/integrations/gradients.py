"""Outputs of kernels without a backward pass: a gradient that is asked for is an error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError


class _ForwardOnly(torch.autograd.Function):
    """The output as it is, in a graph that ends here."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *inputs: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise InputError(
            "attnctl: its kernels compute no gradients; train with "
            'model.set_attn_implementation("sdpa"), and on a model that attach() has not changed'
        )


def forward_only(out: Tensor, *inputs: Tensor | None) -> Tensor:
    """The output, of which a backward pass through these inputs raises InputError."""
    wanting = [one for one in inputs if one is not None and one.requires_grad]
    if wanting and torch.is_grad_enabled():
        marked: Tensor = _ForwardOnly.apply(out.detach(), *wanting)
        return marked
    return out
