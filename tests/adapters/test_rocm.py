"""The three ROCm adapters against the signatures of vLLM's and AITER's functions."""

from __future__ import annotations

from typing import Any

import pytest

from attnctl.backends.rocm_aiter_fa.kernel import AiterAttention
from attnctl.backends.rocm_aiter_unified_attn.kernel import UnifiedAttention
from attnctl.backends.rocm_attn.kernel import RocmAttention
from attnctl.exits import InputError
from attnctl.ops.paged_cases import case
from attnctl.ops.paged_trial import try_case
from tests.adapters import fakes, rocm_fakes
from tests.adapters.trying import faults

VLLM = {"vllm__v1__attention__ops__prefix_prefill": rocm_fakes.vllm_rocm()}
AITER = {"aiter": rocm_fakes.aiter()}
UNIFIED = {"aiter__ops__triton__unified_attention": rocm_fakes.aiter_unified()}


def test_rocm_attn_reads_the_packed_cache_through_strides() -> None:
    """K in five dimensions and V with tokens last are views, in both layouts."""
    adapter = RocmAttention(fakes.loader(**VLLM))
    features = ("plain", "window", "chunk", "alibi", "encoder", "fused_qkv", "padded", "hnd")
    assert faults(adapter, *features) == {}


def test_aiter_fa_lists_the_rows_of_each_sequence() -> None:
    """Pages of one token, in order, behind which nothing is read."""
    adapter = AiterAttention(fakes.loader(**AITER))
    features = ("plain", "window", "chunk", "softcap", "alibi", "fused_qkv", "padded")
    assert faults(adapter, *features) == {}


def test_unified_attention_is_right_with_aiter() -> None:
    """Causal layers go to AITER, sinks and ALiBi too."""
    adapter = UnifiedAttention(fakes.loader(**UNIFIED))
    features = ("plain", "window", "chunk", "softcap", "sinks", "alibi", "padded", "hnd")
    assert faults(adapter, *features) == {}


@pytest.mark.parametrize("there", [UNIFIED, {}])
@pytest.mark.parametrize(
    "changes", [{"causal": False}, {"ranges": True}, {"chunk": 24}, {"alibi": True}]
)
def test_unified_attention_without_an_aiter_that_takes_it_is_the_bundled_kernel(
    there: dict[str, Any], changes: dict[str, Any]
) -> None:
    """What AITER's causal kernel does not take, and all where it is not installed."""
    calls: list[str] = []

    class Bundled:
        @staticmethod
        def check_device(name: str, tensor: Any) -> None:
            assert name == "ROCM_AITER_UNIFIED_ATTN"

        @staticmethod
        def paged_attention(*tensors: Any, max_query_len: int, max_seq_len: int, out: Any) -> Any:
            from attnctl.ops.paged import paged_attention

            calls.append("bundled")
            assert (max_query_len, max_seq_len) == (5, 70)
            return paged_attention(*tensors, out=out)

    adapter = UnifiedAttention(fakes.loader(**there, attnctl__kernels__triton__paged=Bundled))
    one = case(queries="5+2", contexts="70+9", **changes)
    assert try_case(adapter, one).verdict == "pass"
    assert calls == ([] if there and "alibi" in changes else ["bundled"])


@pytest.mark.parametrize(
    ("adapter", "changes", "says"),
    [
        (RocmAttention(fakes.loader(**VLLM)), {"softcap": 5.0}, "no softcap"),
        (RocmAttention(fakes.loader(**VLLM)), {"alibi": True, "window": 5}, "without a window"),
        (AiterAttention(fakes.loader(**AITER)), {"sinks": True}, "has no sinks"),
        (AiterAttention(fakes.loader(**AITER)), {"layout": "HND"}, "one stride apart"),
        (AiterAttention(fakes.loader(**AITER)), {"kv_cache_dtype": "fp8_e4m3"}, "no scales"),
    ],
)
def test_what_the_functions_have_not_is_refused(
    adapter: Any, changes: dict[str, Any], says: str
) -> None:
    """Nothing that has no argument is left out in silence."""
    with pytest.raises(InputError, match=says):
        try_case(adapter, case(**changes))


@pytest.mark.parametrize("runtime", [RocmAttention(), AiterAttention(), UnifiedAttention()])
def test_a_page_that_is_no_multiple_of_16_is_refused_with_the_next(runtime: Any) -> None:
    """24 is refused and 32 named; 64 is taken."""
    with pytest.raises(InputError, match=r"multiple of 16; it is 24\. Try 32"):
        runtime.cache_shape(4, 24, 2, 64)
    assert runtime.cache_shape(4, 64, 2, 64) == (4, 64, 2, 128)
