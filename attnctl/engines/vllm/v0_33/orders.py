"""The order in which vLLM 0.33 tries backends on CUDA and ROCm."""

from __future__ import annotations

from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import ANY, Check, Order
from attnctl.engines.vllm.v0_33.flash_attention import resolves_new, this_width


def _names(*entries: str | tuple[str, Check]) -> tuple[tuple[str, Check], ...]:
    return tuple((entry, ANY) if isinstance(entry, str) else entry for entry in entries)


def _few_heads(facts: Facts, layer: Layer) -> bool:
    return not layer.quantized and layer.num_heads is not None and layer.num_heads <= 16


MM_PREFIX = Check(lambda facts, layer: layer.use_mm_prefix, "image prefixes")
FEW_HEADS = Check(_few_heads, "an unquantised cache and at most 16 heads per rank")
FLASHINFER_FIRST = Check(
    lambda f, x: x.quantized or _few_heads(f, x), "a quantised cache or few heads"
)
FLASHINFER_LAST = Check(lambda f, x: not (x.quantized or _few_heads(f, x)), "many heads")


def _mla_on(*majors: int) -> Check:
    return Check(lambda f, x: x.use_mla and f.major in majors, f"MLA on {majors}")


def _is_blackwell_causal(facts: Facts, layer: Layer) -> bool:
    return facts.major == 10 and not layer.use_non_causal


HOPPER_DENSE = ("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "TRITON_MLA")

CUDA = (
    Order(
        _mla_on(10),
        _names(
            "FLASHINFER_MLA",
            "TOKENSPEED_MLA",
            "CUTLASS_MLA",
            "FLASH_ATTN_MLA",
            "FLASHMLA",
            "TRITON_MLA",
            ("FLASH_ATTN_MLA_SPARSE_FA4", FEW_HEADS),
            ("FLASHINFER_MLA_SPARSE", FLASHINFER_FIRST),
            "FLASHMLA_SPARSE",
            ("FLASHINFER_MLA_SPARSE", FLASHINFER_LAST),
        ),
    ),
    Order(_mla_on(12), _names("TRITON_MLA", "FLASHINFER_MLA_SPARSE_SM120")),
    Order(
        Check(lambda f, x: x.use_mla and x.head_size == 512, "MLA with head size 512"),
        _names(
            *HOPPER_DENSE, "FLASHINFER_MLA_SPARSE_SM90", "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"
        ),
    ),
    Order(
        Check(lambda f, x: x.use_mla, "MLA"),
        _names(
            *HOPPER_DENSE, "FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM90"
        ),
    ),
    Order(
        Check(_is_blackwell_causal, "causal attention on 10.x"),
        _names(
            ("TRITON_FLASHINFER", MM_PREFIX),
            "FLASHINFER",
            "FLASH_ATTN",
            "TRITON_ATTN",
            "FLEX_ATTENTION",
            "TURBOQUANT",
        ),
    ),
    Order(
        ANY,
        _names(
            ("TRITON_FLASH_ATTN", Check(lambda f, x: f.major == 9 and x.use_mm_prefix, "on 9.x")),
            "FLASH_ATTN",
            "FLASHINFER",
            "TRITON_ATTN",
            "FLEX_ATTENTION",
            "TURBOQUANT",
        ),
    ),
)


def _leads_on_rdna4(facts: Facts, layer: Layer) -> bool:
    return facts.rdna == 4 and {"aiter", "aiter_env"} <= facts.have


def _keeps_rocm_attn(facts: Facts, layer: Layer) -> bool:
    return not layer.use_kv_connector and layer.model.attn_type != "encoder_decoder"


AITER = Check(lambda facts, layer: facts.aiter_enabled, "aiter switched on, on CDNA 3 or newer")

ROCM = (
    Order(Check(lambda f, x: x.use_sparse, "sparse"), _names("ROCM_AITER_MLA_SPARSE")),
    Order(
        Check(lambda f, x: x.use_mla, "MLA"),
        _names(("ROCM_AITER_MLA", AITER), "TRITON_MLA", ("ROCM_AITER_TRITON_MLA", AITER)),
    ),
    Order(
        ANY,
        _names(
            ("ROCM_AITER_UNIFIED_ATTN", Check(_leads_on_rdna4, "aiter switched on, on RDNA 4")),
            ("ROCM_ATTN", Check(_keeps_rocm_attn, "no KV connector, no encoder-decoder model")),
            ("ROCM_AITER_FA", AITER),
            (
                "ROCM_AITER_UNIFIED_ATTN",
                # whatever the switch says
                Check(lambda f, x: "aiter" in f.have and f.cdna >= 3, "aiter on CDNA 3 or newer"),
            ),
            "TRITON_ATTN",
            "TURBOQUANT",
            "ROCM_OCTAVE",
            "ULTRAQUANT",
        ),
    ),
)

ORDERS = {"cuda": CUDA, "rocm": ROCM}

UNEQUAL_WIDTHS = (
    (
        "FLASH_ATTN_DIFFKV",
        Check(resolves_new, "FlashAttention 3 or 4 for these widths", this_width),
    ),
    ("TRITON_ATTN_DIFFKV", ANY),
)
