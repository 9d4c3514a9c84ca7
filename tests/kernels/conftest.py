"""Without a GPU the Triton kernels run interpreted, which must be said before the import."""

from __future__ import annotations

import os
import sys

import torch

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("triton was imported before these tests could set TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
