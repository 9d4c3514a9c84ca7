"""vLLM's modules of latent attention without the package around them."""

from __future__ import annotations

import logging
import os
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PEER = Path(os.environ.get("PEER", "."))
OUT = Path(os.environ.get("OUT", "."))
FLASH3, FLASHMLA = "vllm.vllm_flash_attn", "vllm.third_party.flashmla.flash_mla_interface"
FP8 = "vllm.v1.attention.ops.flashmla"


class Platform:
    """What vLLM's modules ask of the device."""

    def is_cuda(self) -> bool:
        return True

    def has_device_capability(self, wanted: int) -> bool:
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor >= wanted

    def is_device_capability_family(self, wanted: int) -> bool:
        return torch.cuda.get_device_capability()[0] == wanted // 10


def load(name: str) -> Any:
    """vLLM's two modules without the package around them, and what is the project's own."""
    if name.startswith("attnctl."):
        return import_module(name)
    if name not in (FLASH3, FLASHMLA, FP8):
        raise ModuleNotFoundError(f"{name}: left out, so that vLLM's is what runs")
    if "vllm" not in sys.modules:
        for one in ("vllm", FLASH3):
            sys.modules[one] = types.ModuleType(one)
            sys.modules[one].__path__ = [str(PEER.joinpath(*one.split(".")))]
        sys.modules[FLASH3].__path__ += [str(PEER), str(PEER / "fa"), *sys.path]
        sys.modules["vllm"].__path__.append(os.environ.get("EXTENSION", str(PEER)))
        sys.modules["vllm.logger"] = types.ModuleType("vllm.logger")
        sys.modules["vllm.logger"].init_logger = logging.getLogger
        sys.modules["vllm.platforms"] = types.ModuleType("vllm.platforms")
        sys.modules["vllm.platforms"].current_platform = Platform()
    found = import_module(f"{FLASH3}.flash_attn_interface" if name == FLASH3 else name)
    if name == FP8 and not found.is_flashmla_dense_supported()[0]:
        raise ModuleNotFoundError(found.is_flashmla_dense_supported()[1])
    return found


def drawn(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").bfloat16()
