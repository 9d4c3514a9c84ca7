"""As much of vLLM as its kernel modules import, over the folder of an unpacked wheel."""

from __future__ import annotations

import enum
import sys
import types
from pathlib import Path

import torch
import triton
import triton.language as tl


class Quiet:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Off:
    def __getattr__(self, name):
        return None if name.endswith("_FOLDER") else False


class Hopper(Quiet):
    def fp8_dtype(self):
        return torch.float8_e4m3fn

    def is_cuda(self):
        return True

    is_cuda_alike = is_cuda

    def is_rocm(self):
        return False

    is_xpu = is_cpu = is_rocm

    def is_arch_support_pdl(self):
        return True

    def is_device_capability(self, wanted):
        return wanted in (90, (9, 0))

    def is_device_capability_family(self, wanted):
        return wanted == 90

    def has_device_capability(self, wanted):
        return True

    def num_compute_units(self, *args):
        return torch.cuda.get_device_properties(0).multi_processor_count

    def get_device_name(self, *args):
        return torch.cuda.get_device_name()


class KVQuantMode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4
    NVFP4 = 5


def stand_in_for_vllm(folder):
    """As much of vLLM's package as its kernel modules import; its tree is not all there."""
    if "vllm" in sys.modules:
        return

    def module(name, **names):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(names)
        return sys.modules[name]

    for name in (
        "vllm",
        "vllm.v1",
        "vllm.v1.attention",
        "vllm.v1.attention.ops",
        "vllm.v1.attention.backends",
        "vllm.model_executor",
        "vllm.model_executor.layers",
        "vllm.model_executor.layers.mamba",
        "vllm.model_executor.layers.mamba.ops",
        "vllm.utils",
    ):
        module(name).__path__ = [str(Path(folder, *name.split(".")))]

    sys.modules["vllm.envs"] = Off()
    sys.modules["vllm"].envs = sys.modules["vllm.envs"]
    module("vllm.logger", init_logger=lambda name: Quiet())
    module("vllm.platforms", current_platform=Hopper())
    module(
        "vllm.triton_utils",
        tl=tl,
        triton=triton,
        HAS_TRITON=True,
        use_tensor_descriptor=lambda *args: False,
        LOG2E=1.4426950408889634,
        LOGE2=0.6931471805599453,
    )
    module(
        "vllm.v1.kv_cache_interface",
        KVQuantMode=KVQuantMode,
        is_quantized_kv_cache=lambda name: "fp8" in str(name),
    )
    sys.modules["vllm"]._custom_ops = module("vllm._custom_ops")
    # its kernels have settings for devices by this name
    named = torch.cuda.get_device_name().replace(" ", "_")
    module("vllm.utils.platform_utils", get_device_name_as_file_name=lambda: named)
    module("vllm.v1.attention.backends.utils", NULL_BLOCK_ID=0, PAD_SLOT_ID=-1)
