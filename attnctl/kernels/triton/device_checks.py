"""Whether a call's tensors lie where the kernels run."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.exits import InputError


def check_device(name: str, tensor: Tensor, instead: str = "CPU_ATTN") -> None:
    """InputError: no tensor, or one of the processor, and kernels that are not interpreted.

    instead: the backend that computes there.
    """
    if not isinstance(tensor, Tensor):
        raise InputError(
            f"{name}: its tensors must lie on a GPU; one is no tensor, but {shown(tensor)}"
        )
    if not tensor.is_cpu or os.environ.get("TRITON_INTERPRET") == "1":
        return
    if torch.cuda.is_available():
        raise InputError(
            f"{name}: its tensors lie on the cpu; move them to the GPU, or set TRITON_INTERPRET=1 "
            "before Python starts to try the kernels in Triton's interpreter"
        )
    raise InputError(
        f"{name}: no GPU driver is active and its tensors lie on the cpu; set TRITON_INTERPRET=1 "
        f"before Python starts to try the kernels in Triton's interpreter, or use {instead}"
    )
