"""Sinks and slopes of whatever dtype and stride reach every library as it reads them."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.backends.flashinfer.kernel import FlashInfer
from attnctl.backends.rocm_aiter_fa.kernel import AiterAttention
from attnctl.backends.rocm_aiter_unified_attn.kernel import UnifiedAttention
from attnctl.backends.rocm_attn.kernel import RocmAttention
from attnctl.kernels.paged.flash_runtime import FlashAttention
from tests.adapters import fakes, rocm_fakes
from tests.adapters.trying import OtherNumbers, faults


def flash(capability: tuple[int, int], **modules: Any) -> FlashAttention:
    return FlashAttention("FLASH_ATTN", fakes.loader(**modules), lambda device: capability)


ADAPTERS: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    "fa2": (flash((8, 0), flash_attn=fakes.fa2()), ("alibi",), {"page": 256}),
    "fa4": (flash((10, 0), flash_attn__cute=fakes.fa4()), ("sinks",), {}),
    "vllm fa2": (
        flash((8, 6), vllm__vllm_flash_attn=fakes.vllm_flash(2)),
        ("alibi",),
        {},
    ),
    "vllm fa3": (
        flash((9, 0), vllm__vllm_flash_attn=fakes.vllm_flash(2, 3)),
        ("sinks",),
        {"dtype": "bfloat16"},
    ),
    "vllm fa4": (
        flash((10, 0), vllm__vllm_flash_attn=fakes.vllm_flash(4)),
        ("sinks",),
        {},
    ),
    "flashinfer": (
        FlashInfer(fakes.loader(flashinfer=fakes.flashinfer())),
        ("sinks",),
        {},
    ),
    "rocm": (
        RocmAttention(
            fakes.loader(vllm__v1__attention__ops__prefix_prefill=rocm_fakes.vllm_rocm())
        ),
        ("alibi",),
        {},
    ),
    "aiter": (AiterAttention(fakes.loader(aiter=rocm_fakes.aiter())), ("alibi",), {}),
    "aiter unified": (
        UnifiedAttention(
            fakes.loader(aiter__ops__triton__unified_attention=rocm_fakes.aiter_unified())
        ),
        ("sinks", "alibi"),
        {},
    ),
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_sinks_and_slopes_reach_a_library_in_float32_and_dense(name: str) -> None:
    """A model keeps them in its own dtype; a library reads float32 or refuses the call."""
    adapter, features, changes = ADAPTERS[name]
    assert faults(OtherNumbers(adapter), *features, **changes) == {}
