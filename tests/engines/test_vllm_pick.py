"""vLLM's selector: cases that users run into."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.engines import vllm
from attnctl.engines.vllm import EnginePick
from attnctl.exits import InputError
from tests.engines.shapes import R1


def run(place: tuple[str, str, str], **config: Any) -> EnginePick:
    return vllm.pick(*place, {"head_size": 128, **config})


def mla(place: tuple[str, str, str], **config: Any) -> EnginePick:
    widths = {"hf": {**R1, **config.pop("hf", {})}, "num_heads": 16, "num_kv_heads": 1}
    return run(
        place, **{"head_size": 576, "use_mla": True, "num_heads": 16, "model": widths, **config}
    )


@pytest.mark.parametrize(
    ("place", "config", "pick"),
    [
        # Turing has no FlashAttention and is left out by FlashInfer
        (("cuda", "7.5", "full"), {"dtype": "float16"}, "TRITON_ATTN"),
        (("cuda", "8.6", "bare"), {}, "FLASH_ATTN"),
        # sinks: FlashAttention 3 on Hopper, none on Ampere, XQA kernels on consumer Blackwell
        (("cuda", "9.0", "bare"), {"head_size": 64, "has_sink": True}, "FLASH_ATTN"),
        (("cuda", "8.0", "full"), {"head_size": 64, "has_sink": True}, "TRITON_ATTN"),
        (("cuda", "12.0", "full"), {"head_size": 64, "has_sink": True}, "FLASHINFER"),
        (("cuda", "12.0", "bare"), {"head_size": 64, "has_sink": True}, "TRITON_ATTN"),
        # fp8 caches: FlashAttention on Hopper, e5m2 never
        (("cuda", "9.0", "full"), {"kv_cache_dtype": "fp8"}, "FLASH_ATTN"),
        (("cuda", "9.0", "full"), {"kv_cache_dtype": "fp8_e5m2"}, "FLASHINFER"),
        (("cuda", "8.9", "bare"), {"kv_cache_dtype": "fp8"}, "TRITON_ATTN"),
        # FlashInfer's nvfp4 needs cubins on 10.x only
        (("cuda", "10.0", "full"), {"kv_cache_dtype": "nvfp4"}, "FLASHINFER"),
        (("cuda", "10.0", "pip_offline"), {"kv_cache_dtype": "nvfp4"}, None),
        # 512-wide heads: FlashAttention 4 on Hopper, FlashInfer elsewhere
        (("cuda", "9.0", "bare"), {"head_size": 512}, "FLASH_ATTN"),
        (("cuda", "8.9", "full"), {"head_size": 512}, "FLASHINFER"),
        # image prefixes: a composite on Hopper and Blackwell
        (("cuda", "9.0", "bare"), {"head_size": 256, "use_mm_prefix": True}, "TRITON_FLASH_ATTN"),
        (("cuda", "10.0", "full"), {"head_size": 256, "use_mm_prefix": True}, "TRITON_FLASHINFER"),
        (("cuda", "10.0", "bare"), {"head_size": 128, "use_mm_prefix": True}, "FLASH_ATTN"),
        (("cuda", "11.0", "full"), {}, "FLASH_ATTN"),
        (("cuda", "10.0", "full"), {"use_non_causal": True}, "FLASH_ATTN"),
        (("cuda", "10.0", "full"), {"attn_type": "encoder"}, "FLASH_ATTN"),
        (("cuda", "8.0", "full"), {"pcp": 2}, None),
        # ROCm: aiter leads on RDNA 4, is second on CDNA 3, and is nothing on CDNA 2
        (("rocm", "gfx1201", "aiter_on"), {}, "ROCM_AITER_UNIFIED_ATTN"),
        (("rocm", "gfx942", "aiter_on"), {"has_sink": True}, "ROCM_AITER_FA"),
        (("rocm", "gfx942", "aiter_off"), {"has_sink": True}, "ROCM_AITER_UNIFIED_ATTN"),
        (("rocm", "gfx90a", "aiter_on"), {"has_sink": True}, "TRITON_ATTN"),
        (("rocm", "gfx942", "bare"), {"use_kv_connector": True}, "TRITON_ATTN"),
        (("xpu", "xpu", "full"), {"dtype": "float32", "backend": "FLASH_ATTN"}, "TRITON_ATTN"),
        (("xpu", "xpu", "full"), {"head_size": 100}, "FLASH_ATTN"),
        (("cpu", "x86-avx512", "full"), {"kv_cache_dtype": "fp8"}, "CPU_ATTN"),
        (("cpu", "x86-avx2", "full"), {"kv_cache_dtype": "fp8"}, None),
        (("cpu", "aarch64", "full"), {"backend": "FLASHINFER"}, "CPU_ATTN"),
    ],
)
def test_known_layers_get_the_known_pick(
    place: tuple[str, str, str], config: dict[str, Any], pick: str | None
) -> None:
    """One line per rule that users stumble over."""
    assert run(place, **config).pick == pick


@pytest.mark.parametrize(
    ("place", "config", "pick"),
    [
        (("cuda", "9.0", "bare"), {}, "FLASH_ATTN_MLA"),
        (("cuda", "9.0", "bare"), {"kv_cache_dtype": "fp8"}, "FLASHMLA"),
        (("cuda", "10.0", "full"), {}, "FLASHINFER_MLA"),
        (("cuda", "10.0", "bare"), {}, "CUTLASS_MLA"),
        (("cuda", "10.0", "full"), {"batch_invariant": True}, "TRITON_MLA"),
        (("cuda", "8.0", "full"), {}, "TRITON_MLA"),
        (("cuda", "8.0", "full"), {"dtype": "float32"}, None),
        (("rocm", "gfx942", "aiter_on"), {"block_size": 1}, "ROCM_AITER_MLA"),
        (("rocm", "gfx942", "aiter_off"), {}, "TRITON_MLA"),
        (("xpu", "xpu", "full"), {}, "FLASH_ATTN_MLA"),
        (("xpu", "xpu", "full"), {"block_size": 32}, "TRITON_MLA"),
        (("cpu", "x86-amx", "full"), {}, "AMX_MLA"),
        (("cpu", "x86-amx", "full"), {"backend": "CPU_MLA"}, "CPU_MLA"),
        (("cpu", "aarch64", "full"), {"kv_cache_dtype": "fp8"}, None),
    ],
)
def test_known_latent_layers_get_the_known_pick(
    place: tuple[str, str, str], config: dict[str, Any], pick: str | None
) -> None:
    """DeepSeek's widths, dense."""
    assert mla(place, **config).pick == pick


@pytest.mark.parametrize(
    ("place", "config", "pick"),
    [
        (("cuda", "9.0", "bare"), {}, "FLASH_ATTN_MLA_SPARSE"),
        (("cuda", "9.0", "full"), {"kv_cache_dtype": "fp8"}, "FLASHMLA_SPARSE"),
        (("cuda", "10.0", "full"), {"num_heads": 16}, "FLASH_ATTN_MLA_SPARSE_FA4"),
        (("cuda", "10.0", "full"), {"num_heads": 128}, "FLASHMLA_SPARSE"),
        (("cuda", "10.0", "bare"), {"num_heads": 16}, "FLASHINFER_MLA_SPARSE"),
        (("cuda", "12.0", "full"), {}, "FLASHINFER_MLA_SPARSE_SM120"),
        (("cuda", "12.0", "bare"), {}, None),
        (("cuda", "8.0", "full"), {}, None),
        (("rocm", "gfx90a", "bare"), {}, "ROCM_AITER_MLA_SPARSE"),
        (("xpu", "xpu", "full"), {"backend": "FLASHMLA"}, "XPU_MLA_SPARSE"),
    ],
)
def test_known_sparse_layers_get_the_known_pick(
    place: tuple[str, str, str], config: dict[str, Any], pick: str | None
) -> None:
    """DeepSeek V3.2's widths with its indexer's 2048 tokens."""
    found = mla(place, use_sparse=True, hf={"index_topk": 2048}, **config)
    assert found.pick == pick


def test_sparse_layers_raise_another_class_on_cpu() -> None:
    """CPU does not even look for a backend."""
    assert mla(("cpu", "x86-amx", "full"), use_sparse=True).error == "NotImplementedError"


def test_an_import_that_fails_is_the_only_reason() -> None:
    """Nothing else is looked at where the class cannot be loaded."""
    found = run(("cuda", "9.0", "noext"), head_size=100, dtype="float32", pcp=2)
    assert found.rejected["FLASH_ATTN"] == {"package_missing"}
    assert found.rejected["TRITON_ATTN"] == {"pcp"}


def test_at_most_one_combination_counts() -> None:
    """FlashAttention's sparse kernel names the cache first, then the missing kernel, then DCP."""
    place = ("cuda", "8.0", "full")
    reasons = {
        kv: mla(place, use_sparse=True, kv_cache_dtype=kv).rejected["FLASH_ATTN_MLA_SPARSE"]
        for kv in ("auto", "fp8")
    }
    assert reasons["auto"] == {"compute_capability", "kernel_missing"}
    assert reasons["fp8"] == {"compute_capability", "kv_cache_dtype"}


WIDE = {"head_size": 256}


@pytest.mark.parametrize(
    ("arch", "config", "reasons"),
    [
        # its pages of 128 tokens are declared before sinks or the asked block are known
        ("10.0", {**WIDE, "block_size": 64}, {"block_size"}),
        ("10.3", {**WIDE, "block_size": 16, "has_sliding_window": True}, {"block_size"}),
        ("10.0", {**WIDE, "block_size": 64, "has_sink": True}, {"block_size"}),
        ("10.0", {**WIDE, "block_size": 256}, set()),
        # what the kernel does not do leaves FlashAttention 2 and pages of 16
        ("10.0", {**WIDE, "block_size": 64, "dcp": 2}, set()),
        ("10.0", {**WIDE, "block_size": 64, "use_rswa": True}, set()),
        ("10.0", {**WIDE, "block_size": 64, "batch_invariant": True}, set()),
        ("10.0", {**WIDE, "block_size": 64, "model": {"softcap": True}}, set()),
        # other widths and devices have no such kernel, Thor runs FlashAttention 2
        ("10.0", {"head_size": 128, "block_size": 64}, set()),
        ("9.0", {**WIDE, "block_size": 64}, set()),
        ("11.0", {**WIDE, "block_size": 64}, set()),
    ],
)
def test_the_kernel_for_head_size_256_has_pages_of_128(
    arch: str, config: dict[str, Any], reasons: set[str]
) -> None:
    """On 10.x a block size that is no multiple of 128 costs a user FlashAttention."""
    assert run(("cuda", arch, "full"), **config).rejected.get("FLASH_ATTN", set()) == reasons


@pytest.mark.parametrize(
    ("arch", "head_size", "reasons"),
    [
        # 4 runs here, but reads no fp8 cache at this width: the first reason ends the search
        ("10.0", 256, {"kv_cache_dtype"}),
        ("10.0", 288, {"kv_cache_dtype"}),
        # on Hopper the prefixes are refused before widths are compared
        ("9.0", 256, {"mm_prefix"}),
        ("9.0", 320, {"mm_prefix"}),
        # no version 4: both are refused from the start
        ("8.9", 256, {"kv_cache_dtype", "mm_prefix"}),
    ],
)
def test_an_fp8_cache_under_image_prefixes_has_the_reason_that_comes_first(
    arch: str, head_size: int, reasons: set[str]
) -> None:
    """Cache, prefixes and width are compared in one place, which names one of them."""
    config = {"head_size": head_size, "kv_cache_dtype": "fp8", "use_mm_prefix": True}
    found = run(("cuda", arch, "full"), **config).rejected["FLASH_ATTN"]
    assert found == reasons


@pytest.mark.parametrize(
    ("arch", "installed", "backend", "config", "reasons"),
    [
        # dtypes are refused before the model is looked at
        *[
            ("12.0", "full", "FLASHINFER_MLA_SPARSE_SM120", config, reasons)
            for config, reasons in (
                ({"dtype": "float16"}, {"dtype", "not_sparse"}),
                ({"kv_cache_dtype": "fp8_e5m2"}, {"kv_cache_dtype", "not_sparse"}),
                ({}, {"index_topk", "not_sparse"}),
            )
        ],
        # the widths of a dense layer are not compared, those of a sparse one always are
        (
            *("9.0", "full", "FLASHINFER_MLA_SPARSE_SM90"),
            {"hf": {"kv_lora_rank": 256}, "head_size": 320, "use_sparse": True},
            {"head_size", "mla_dims"},
        ),
        (
            *("9.0", "full", "FLASHINFER_MLA_SPARSE_SM90"),
            {"hf": {"kv_lora_rank": 256}, "head_size": 320},
            {"head_size", "not_sparse"},
        ),
        # ranks before widths, widths before index_topk
        (
            *("10.0", "full", "FLASHINFER_MLA_SPARSE"),
            {"hf": {"qk_nope_head_dim": 96}, "use_sparse": True, "pcp": 2, "dcp": 2},
            {"dcp"},
        ),
        # kernels of FlashInfer load vLLM's own FlashAttention
        (
            *("10.0", "noext", "FLASHINFER_MLA_SPARSE"),
            {"hf": {"index_topk": 2048}, "use_sparse": True},
            {"package_missing"},
        ),
        *[
            (*("12.0", "noext", "FLASHINFER_MLA_SPARSE_SM120"), {"use_sparse": sparse}, reasons)
            for sparse, reasons in ((True, {"package_missing"}), (False, {"package_missing"}))
        ],
        # the extension is asked for before the device
        (
            *("8.0", "noext", "FLASHMLA"),
            {"use_sparse": True},
            {"compute_capability", "kernel_missing", "sparse"},
        ),
    ],
)
def test_latent_kernels_name_what_vllm_compares_first(
    arch: str, installed: str, backend: str, config: dict[str, Any], reasons: set[str]
) -> None:
    """Of the reasons for a combination only the first counts, so their order is part of it."""
    assert mla(("cuda", arch, installed), **config).rejected[backend] == reasons


@pytest.mark.parametrize(
    ("config", "pick"),
    [
        ({}, "TRITON_FLASH_ATTN"),
        ({"backend": "TRITON_FLASH_ATTN"}, "TRITON_FLASH_ATTN"),
        ({"backend": "FLASH_ATTN"}, "FLASH_ATTN"),
        # a name that means nothing there keeps the composite out too
        ({"backend": "FLASHINFER"}, "TRITON_ATTN"),
        ({"backend": "TRITON_FLASH_ATTN", "dtype": "float32"}, "TRITON_ATTN"),
        ({"backend": "TRITON_FLASH_ATTN", "head_size": 128}, None),
    ],
)
def test_image_prefixes_on_xpu_take_the_composite_unless_another_name_is_forced(
    config: dict[str, Any], pick: str | None
) -> None:
    """Only no name, and its own, let vLLM look at the composite."""
    place = ("xpu", "xpu", "full")
    assert run(place, **{"head_size": 256, "use_mm_prefix": True, **config}).pick == pick


def test_flashinfer_s_cubins_serve_sinks_and_nvfp4_whatever_the_group_of_heads() -> None:
    """Only its large pages want query heads that divide."""
    odd = {"num_heads": 40, "num_kv_heads": 16}
    place = ("cuda", "10.0", "full")
    assert run(place, kv_cache_dtype="nvfp4", model=odd).pick == "FLASHINFER"
    assert run(place, head_size=64, has_sink=True, model=odd).pick == "FLASHINFER"
    assert run(place, block_size=128, model=odd).pick == "FLASHINFER"


def test_of_nvfp4_caches_flashinfer_looks_at_the_beginning_of_the_name_on_10() -> None:
    """vLLM's own check; elsewhere the whole name counts."""
    packed = {"kv_cache_dtype": "nvfp4_ds_mla"}
    assert run(("cuda", "10.0", "full"), **packed).pick == "FLASHINFER"
    assert "kv_cache_dtype" in run(("cuda", "12.0", "full"), **packed).rejected["FLASHINFER"]


def test_the_segmented_kernel_takes_windows_and_no_connector() -> None:
    """It is built on ROCM_ATTN, whose cache no connector carries."""
    forced = {"backend": "ROCM_SEGMENTED_ATTN"}
    place = ("rocm", "gfx1151", "bare")
    assert run(place, has_sliding_window=True, **forced).pick == "ROCM_SEGMENTED_ATTN"
    assert run(place, use_non_causal=True, **forced).pick == "ROCM_SEGMENTED_ATTN"
    assert run(place, use_kv_connector=True, **forced).error == "ValueError"


@pytest.mark.parametrize(
    ("place", "hf", "prefill"),
    [
        (("cuda", "8.0", "bare"), {}, "FLASH_ATTN"),
        (("cuda", "10.0", "full"), {}, "FLASH_ATTN"),
        (("cuda", "10.0", "full"), {"qk_nope_head_dim": 192, "v_head_dim": 256}, "TRTLLM_RAGGED"),
        (("cuda", "10.0", "bare"), {"qk_nope_head_dim": 192, "v_head_dim": 256}, "FLASH_ATTN"),
        (("cuda", "9.0", "full"), {"qk_nope_head_dim": 64, "v_head_dim": 64}, None),
        (("cuda", "9.0", "noext"), {}, None),
        (("rocm", "gfx950", "aiter_on"), {"qk_nope_head_dim": 64}, "ROCM_AITER_FA"),
        (("rocm", "gfx1100", "aiter_on"), {}, "FLASH_ATTN"),
        (("rocm", "gfx942", "bare"), {}, None),
        (("xpu", "xpu", "full"), {"v_head_dim": 7}, "FLASH_ATTN"),
        (("cpu", "aarch64", "full"), {}, "CPU_SDPA_MLA"),
    ],
)
def test_the_prefill_kernel_is_a_choice_of_its_own(
    place: tuple[str, str, str], hf: dict[str, int], prefill: str | None
) -> None:
    """A model may get a decode backend and no prefill backend."""
    assert mla(place, hf=hf, want_prefill=True).mla_prefill == prefill


@pytest.mark.parametrize(
    "place", [("tpu", "v5", "full"), ("cuda", "9.0", "aiter_on"), ("cuda", "sm_90", "full")]
)
def test_places_that_nobody_knows_are_refused(place: tuple[str, str, str]) -> None:
    """A platform, a profile of another platform, an arch that is no compute capability."""
    with pytest.raises(InputError):
        run(place)


def test_an_unset_cache_dtype_is_taken_except_by_packed_caches() -> None:
    """vLLM's None stands for nothing asked; TURBOQUANT and ULTRAQUANT exist for their dtypes."""
    found = run(("rocm", "gfx942", "bare"), head_size=256, kv_cache_dtype=None)
    assert found.rejected == {
        "TURBOQUANT": {"kv_cache_dtype"},
        "ULTRAQUANT": {"kv_cache_dtype"},
    }
