"""Whether a call's tensors lie where the kernels run."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.exits import InputError


def check_device(name: str, tensor: Tensor, instead: str = "CPU_ATTN") -> None:
    """InputError: no tensor, one without memory, or one of the processor, and kernels that are not
    interpreted.

    instead: the backend that computes there.
    """
    if not isinstance(tensor, Tensor):
        raise InputError(
            f"{name}: its tensors must lie on a GPU; one is no tensor, but {shown(tensor)}"
        )
    if tensor.is_meta:
        check_memory(name)
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


def check_memory(name: str) -> None:
    """InputError: tensors without memory are to be computed with, and nothing is being compiled."""
    from attnctl.kernels.triton.stand_in import meta_device

    try:
        meta_device()
    except LookupError:
        raise InputError(
            f"{name}: its tensors lie on meta, where they hold nothing; give tensors with memory. "
            "For kernels of a GPU that is not here there is attnctl smoke --compile-for"
        ) from None
