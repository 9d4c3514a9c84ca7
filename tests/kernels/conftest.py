"""Without a GPU the Triton kernels run in Triton's interpreter, which must be said before import."""

from __future__ import annotations

import os
import sys

import torch

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError(
            "something imported triton before these tests could ask for interpreting"
        )
    os.environ["TRITON_INTERPRET"] = "1"
