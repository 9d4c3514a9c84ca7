"""How vLLM 0.33 chooses the prefill kernel of latent attention, apart from decoding."""

from __future__ import annotations

from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.rules import ANY, Check, Order, Prefill

R1 = (128, 64, 128)
WIDE = (192, 64, 256)
FLASH_DIMS = (R1, WIDE, (64, 64, 128), (256, 0, 256))


def dims(layer: Layer) -> tuple[int | None, int | None, int | None]:
    return (
        layer.width("qk_nope_head_dim"),
        layer.width("qk_rope_head_dim"),
        layer.width("v_head_dim"),
    )


def _aiter(facts: Facts, layer: Layer) -> bool:
    mi300 = facts.arch in ("gfx942", "gfx950")
    return mi300 and facts.aiter_enabled and not layer.batch_invariant


FLASHINFER = Check(lambda f, x: f.major == 10 and f.has("flashinfer"), "flashinfer on 10.x")
TOKENSPEED = Check(lambda f, x: f.major == 10 and f.has("tokenspeed_mla"), "tokenspeed_mla on 10.x")

CUDA = {
    "FLASH_ATTN": Prefill(
        name="FLASH_ATTN",
        dims=FLASH_DIMS,
        when=Check(lambda f, x: f.has("fa_wrapper"), "vLLM's FlashAttention"),
    ),
    "TRTLLM_RAGGED": Prefill(name="TRTLLM_RAGGED", dims=(R1, WIDE), when=FLASHINFER),
    "FLASHINFER": Prefill(name="FLASHINFER", dims=(R1,), when=FLASHINFER),
    "TOKENSPEED_MLA": Prefill(name="TOKENSPEED_MLA", dims=(R1,), when=TOKENSPEED),
}
ROCM = {
    "ROCM_AITER_FA": Prefill(name="ROCM_AITER_FA", when=Check(_aiter, "aiter on gfx942 or gfx950")),
    "FLASH_ATTN": Prefill(
        name="FLASH_ATTN",
        dims=FLASH_DIMS,
        when=Check(lambda f, x: f.has("flash_attn"), "the flash_attn package"),
    ),
}
CPU = {
    "ZEN_CPU": Prefill(name="ZEN_CPU", when=Check(lambda f, x: f.has("zen"), "ZenDNN")),
    "CPU_SDPA_MLA": Prefill(name="CPU_SDPA_MLA"),
}
# no compute capability: taken without a check
XPU = {"FLASH_ATTN": Prefill(name="FLASH_ATTN")}

ROWS = {"cuda": CUDA, "rocm": ROCM, "cpu": CPU, "xpu": XPU}


def _order(when: Check, *names: str) -> Order:
    return Order(when, tuple((name, ANY) for name in names))


ORDERS = {
    "cuda": (
        _order(
            Check(lambda f, x: f.major == 10 and dims(x) == WIDE, "10.x, widths 192, 64, 256"),
            *("TRTLLM_RAGGED", "FLASH_ATTN", "FLASHINFER", "TOKENSPEED_MLA"),
        ),
        _order(
            Check(lambda f, x: f.major == 10, "10.x"),
            *("FLASH_ATTN", "TRTLLM_RAGGED", "FLASHINFER", "TOKENSPEED_MLA"),
        ),
        _order(ANY, "FLASH_ATTN"),
    ),
    "rocm": (_order(ANY, "ROCM_AITER_FA", "FLASH_ATTN"),),
    "cpu": (_order(ANY, "ZEN_CPU", "CPU_SDPA_MLA"),),
    "xpu": (_order(ANY, "FLASH_ATTN"),),
}
