"""Rows of vLLM 0.33 for dense latent attention on CUDA."""

from __future__ import annotations

from attnctl.caches.pages import KernelBlocks
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import (
    ANY,
    FP8,
    UNQUANTIZED,
    Backend,
    absent,
    heads,
    kv,
    majors,
    reject,
    where,
)
from attnctl.engines.vllm.v0_33 import flash_attention as fa
from attnctl.findings import Finding

HEADS = heads(320, 512, 576)
WITH_FP8 = kv(*UNQUANTIZED, *FP8)
DENSE = {"pcp": ANY, "dcp": ANY}
DECODE_BLOCKS = {**DENSE, "non_causal": ANY, "non_causal_dcp": ANY}


def needs_fa3(facts: Facts, layer: Layer) -> Finding | None:
    if fa.supported(facts, 3):
        return None
    found = "not compiled in" if facts.major == 9 else where(facts)
    return reject("kernel_missing", "FlashAttention 3 (Hopper, in vLLM's wheel)", found)


def _flashmla(facts: Facts, layer: Layer) -> Finding | None:
    """Return why FlashMLA's kernels do not serve: sparse ones run on 9.x and 10.x, dense on 9.x."""
    if "flashmla" not in facts.have:
        return reject("kernel_missing", "the FlashMLA extension of vLLM's wheel", "not compiled in")
    if layer.use_sparse and facts.major not in (9, 10):
        return reject("compute_capability", "compute capability 9.x or 10.x for sparse", facts.arch)
    if not layer.use_sparse and facts.major != 9:
        return reject("kernel_missing", "compute capability 9.x for the dense kernel", facts.arch)
    return None


def _nope(facts: Facts, layer: Layer) -> Finding | None:
    nope = layer.width("qk_nope_head_dim")
    if nope in (None, 64, 128, 192):
        return None
    return reject("mla_dims", "qk_nope_head_dim 64, 128 or 192", f"qk_nope_head_dim {nope}")


def _tokenspeed(facts: Facts, layer: Layer) -> Finding | None:
    if "tokenspeed_mla" not in facts.have:
        return absent(facts, "tokenspeed_mla")
    dims = tuple(layer.width(n) for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if not layer.has_model or dims == (128, 64, 128):
        return None
    return reject("mla_dims", "qk_nope, qk_rope and v widths 128, 64, 128", str(dims))


ROWS = (
    Backend(
        name="FLASH_ATTN_MLA",
        heads=HEADS,
        blocks=KernelBlocks(sizes=(16,)),
        capability=majors(9),
        features={**DENSE, "batch_invariant": ANY},
        mla=True,
        needs=("fa_wrapper",),
        combinations=(needs_fa3,),
    ),
    Backend(
        name="FLASHMLA",
        heads=HEADS,
        kv=WITH_FP8,
        blocks=KernelBlocks(sizes=(64,)),
        capability=majors(9, 10),
        features=DENSE,
        mla=True,
        combinations=(_flashmla,),
    ),
    Backend(
        name="FLASHINFER_MLA",
        heads=HEADS,
        kv=WITH_FP8,
        blocks=KernelBlocks(sizes=(32, 64)),
        capability=majors(10),
        features=DECODE_BLOCKS,
        mla=True,
        needs=("flashinfer",),
        combinations=(_nope,),
    ),
    Backend(
        name="TOKENSPEED_MLA",
        heads=HEADS,
        kv=kv(*FP8),
        blocks=KernelBlocks(sizes=(32, 64)),
        capability=majors(10),
        features=DECODE_BLOCKS,
        mla=True,
        combinations=(_tokenspeed,),
    ),
    Backend(
        name="CUTLASS_MLA",
        heads=HEADS,
        kv=WITH_FP8,
        blocks=KernelBlocks(sizes=(128,)),
        capability=majors(10),
        features=DENSE,
        mla=True,
    ),
    Backend(
        name="TRITON_MLA",
        kv=WITH_FP8,
        blocks=KernelBlocks(sizes=(16,)),
        features={**DENSE, "non_causal": ANY, "batch_invariant": ANY},
        mla=True,
    ),
)
