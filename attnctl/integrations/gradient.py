"""Results without a gradient, said where one is asked for: the kernels compute forward alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from attnctl.exits import InputError


class _Forward(Function):
    """The result as it is, of inputs that want a gradient which nobody can give."""

    @staticmethod
    def forward(context: Any, found: Tensor, *inputs: Tensor) -> Tensor:
        return found.view_as(found)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        raise InputError(
            "attnctl: its kernels compute no gradients; train with another attn_implementation "
            '("sdpa", "eager")'
        )


def without_gradient(found: Tensor, *inputs: Tensor | None) -> Tensor:
    """The result, from which a backward pass to any of the inputs is an InputError, not silence."""
    wanting = [one for one in inputs if one is not None and one.requires_grad]
    if not wanting or not torch.is_grad_enabled():
        return found
    told: Tensor = _Forward.apply(found.detach(), *wanting)
    return told
