"""Small named rules over a machine and a layer, of which a backend's declaration is a list.

Each factory returns a Rule, or a list of them. A rule looks at the machine, at the layer, or at
both, and answers in a Finding, or None where the layer does not raise the question. All rules run,
always.
"""

from attnctl.requirements.devices import (
    CDNA3,
    RDNA4,
    arch_of,
    capability,
    capability_of,
    gfx,
    isa,
    platform,
)
from attnctl.requirements.dtypes import device_dtype, fp8_hardware
from attnctl.requirements.features import features
from attnctl.requirements.flash import (
    flash_alibi,
    flash_block_size,
    flash_head_size,
    flash_kernel,
    flash_kv_cache_dtype,
    flash_prefix_lm,
    flash_sinks,
)
from attnctl.requirements.flash_versions import flash_block_multiple, flash_page, flash_version
from attnctl.requirements.flashinfer import flashinfer_kv_cache_dtype, flashinfer_sinks
from attnctl.requirements.layers import (
    ANY_FLOAT,
    HALF,
    PLAIN_KV,
    block_size,
    compute_dtypes,
    conv_width,
    head_sizes,
    key_width,
    kv_cache_dtypes,
    one_stack,
    operation,
    whole_chunks,
)
from attnctl.requirements.memory import shared_memory
from attnctl.requirements.mla import (
    LATENT_ROWS,
    flashmla_sparse_512,
    flashmla_sparse_block,
    indexed,
    mla_dims,
)
from attnctl.requirements.packages import installed, package, triton
from attnctl.requirements.ranks import tensor_parallel
from attnctl.requirements.rule import Rule, Subject, on

__all__ = [
    "ANY_FLOAT",
    "CDNA3",
    "HALF",
    "LATENT_ROWS",
    "PLAIN_KV",
    "RDNA4",
    "Rule",
    "Subject",
    "arch_of",
    "block_size",
    "capability",
    "capability_of",
    "compute_dtypes",
    "conv_width",
    "device_dtype",
    "features",
    "flash_alibi",
    "flash_block_multiple",
    "flash_block_size",
    "flash_head_size",
    "flash_kernel",
    "flash_kv_cache_dtype",
    "flash_page",
    "flash_prefix_lm",
    "flash_sinks",
    "flash_version",
    "flashinfer_kv_cache_dtype",
    "flashinfer_sinks",
    "flashmla_sparse_512",
    "flashmla_sparse_block",
    "fp8_hardware",
    "gfx",
    "head_sizes",
    "indexed",
    "installed",
    "isa",
    "key_width",
    "kv_cache_dtypes",
    "mla_dims",
    "on",
    "one_stack",
    "operation",
    "package",
    "platform",
    "shared_memory",
    "tensor_parallel",
    "triton",
    "whole_chunks",
]
