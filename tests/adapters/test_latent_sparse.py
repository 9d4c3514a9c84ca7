"""The adapters of sparse latent attention against their libraries."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from attnctl.backends.flashinfer_mla_sparse.kernel import FlashInferMlaSparse
from attnctl.backends.flashmla_sparse.kernel import FlashMlaSparse
from attnctl.backends.rocm_aiter_mla_sparse.kernel import AiterMlaSparse
from attnctl.backends.xpu_mla_sparse.kernel import XpuMlaSparse
from attnctl.exits import AbsentError, InputError
from attnctl.kernels.row_lists import packed_first, picked_lists
from attnctl.ops.mla import Latent
from attnctl.runtime import open_backend
from tests.adapters import latent_fakes as fakes
from tests.adapters import latent_flash_fakes as flash_fakes
from tests.adapters.trying import libraries, wrong_batches

VENDORED = "vllm__third_party__flashmla__flash_mla_interface"

BATCHES: dict[str, dict[str, Any]] = {
    "first": {},
    "holes": {"picks": "holes", "queries": "2+3", "contexts": "40+9"},
    "stray": {"picks": "stray", "queries": "2+3", "contexts": "40+9"},
    "nothing": {"picks": "nothing"},
    "padded": {"picks": "holes", "queries": "1+1", "contexts": "20+33", "padding": 2},
    "empty": {"queries": "0+3+0+1", "contexts": "0+3+9+20"},
    "none": {"queries": "", "contexts": ""},
    "one place": {"topk": 1},
    "129 places": {"topk": 129, "picks": "holes"},
    "indexer": {"picks": "indexer"},
}
wrong = partial(wrong_batches, "mla_sparse", BATCHES)


@pytest.mark.parametrize("package", ["flash-mla", "vllm"])
def test_flashmla_reads_plain_caches_and_packed_rows(package: str) -> None:
    """By two kernels, lists filled up with -1 and heads with zeros; rows of 512 too."""
    module = flash_fakes.flashmla(package)
    name = "flash_mla" if package == "flash-mla" else VENDORED
    runtime = FlashMlaSparse(libraries({name: module}))
    assert wrong(runtime) == {}
    assert wrong(runtime, kv_cache_dtype="fp8_ds_mla") == {}
    assert wrong(runtime, "holes", heads=100) == {}
    assert wrong(runtime, "holes", rope=0, page=128) == {}
    assert set(module.calls) == {"plain", "packed"}


def test_flashmla_packs_an_fp8_cache_whatever_its_name() -> None:
    """656 bytes a token of 512 + 64; without FP8 the columns themselves."""
    runtime = FlashMlaSparse(libraries())
    for name in ("fp8", "fp8_ds_mla"):
        assert runtime.cache_shape(3, 64, 512, 64, name) == (3, 64, 656)
    assert runtime.cache_shape(3, 64, 512, 64, "bfloat16") == (3, 64, 576)


def test_flashinfer_wants_the_named_slots_in_front() -> None:
    """Lists of 128 places and their lengths, which are never 0; FP8 caches with FP8 queries."""
    module = fakes.flashinfer()
    runtime = FlashInferMlaSparse(libraries({"flashinfer__mla": module}))
    assert wrong(runtime) == {}
    assert wrong(runtime, "holes", "nothing", rope=0, page=32) == {}
    assert wrong(runtime, "holes", heads=80) == {}
    assert wrong(runtime, kv_cache_dtype="fp8_e4m3") == {}
    assert set(module.calls) == {"sparse"}


@pytest.mark.parametrize(("package", "called"), [("aiter", 9), ("amd-aiter", 0)])
def test_aiter_decodes_the_named_rows(package: str, called: int) -> None:
    """Each query token's in a list of its own; an empty list gives 0."""
    module = fakes.aiter(package)
    assert wrong(AiterMlaSparse(libraries({"aiter__mla": module}))) == {}
    assert len(module.calls) == called


def test_intels_kernel_reads_plain_caches() -> None:
    """Rows of 512 + 64 and of 512."""
    module = flash_fakes.xpu_sparse()
    runtime = XpuMlaSparse(libraries({"vllm_xpu_kernels__flash_mla_interface": module}))
    assert wrong(runtime) == {}
    assert wrong(runtime, "holes", rope=0) == {}
    assert set(module.calls) == {"plain"}


LIBRARIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "FLASHMLA_SPARSE": (FlashMlaSparse, {VENDORED: flash_fakes.flashmla()}),
    "FLASHINFER_MLA_SPARSE": (FlashInferMlaSparse, {"flashinfer__mla": fakes.flashinfer()}),
    "ROCM_AITER_MLA_SPARSE": (AiterMlaSparse, {"aiter__mla": fakes.aiter("aiter")}),
    "XPU_MLA_SPARSE": (
        XpuMlaSparse,
        {"vllm_xpu_kernels__flash_mla_interface": flash_fakes.xpu_sparse()},
    ),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("changes", [{"dtype": "float16"}, {"lora": 256}, {"heads": 129}])
def test_what_a_library_does_not_compute_the_bundled_kernel_does(
    name: str, changes: dict[str, Any]
) -> None:
    """Other dtypes, widths and more heads, over the same cache."""
    make, modules = LIBRARIES[name]
    assert wrong(make(libraries(modules)), "holes", **changes) == {}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_call_without_tensors_for_the_result_gives_the_same(name: str) -> None:
    """No log-sum-exp is asked of the library then; a list without slots gives 0."""
    make, modules = LIBRARIES[name]
    runtime = make(libraries(modules))
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(2, 3, 576, generator=generator).bfloat16()
    cache = torch.randn(2, 64, 576, generator=generator).bfloat16()
    slots = torch.tensor([[3, 127, -1, 500], [-1, -1, 128, -9]], dtype=torch.int32)
    one = torch.ones(2, dtype=torch.int32)
    metadata = runtime.build_metadata(
        torch.arange(3), one, one[:, None], one.long(), max_query_len=1, max_seq_len=1
    )
    params = Latent(scale=0.05, kv_lora_rank=512)
    out, lse = torch.empty(2, 3, 512).bfloat16(), torch.empty(2, 3)
    runtime.forward(query, cache, metadata, slots, params, out, lse)
    assert torch.equal(runtime.forward(query, cache, metadata, slots, params), out)
    assert bool(out[0].any())
    assert not out[1].any()
    assert bool((lse[1] == -torch.inf).all())


@pytest.mark.parametrize("name", ["ROCM_AITER_MLA_SPARSE", "XPU_MLA_SPARSE"])
def test_without_their_library_amd_and_intel_have_the_bundled_kernel(name: str) -> None:
    """Nothing is installed but Triton."""
    assert wrong(LIBRARIES[name][0](libraries())) == {}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (FlashMlaSparse, "FLASHMLA_SPARSE: FlashMLA cannot be loaded"),
        (FlashInferMlaSparse, "FLASHINFER_MLA_SPARSE: FlashInfer cannot be loaded"),
    ],
)
def test_a_library_that_is_not_there_is_said(make: Any, says: str) -> None:
    """On NVIDIA devices no other kernel stands in for the one that was asked for."""
    with pytest.raises(AbsentError, match=says):
        wrong(make(libraries()), "first")


def test_packed_rows_are_refused_where_the_library_has_none() -> None:
    """FlashInfer's and AITER's caches hold columns."""
    for make in (FlashInferMlaSparse, AiterMlaSparse):
        with pytest.raises(InputError, match="rows of fp8_ds_mla are not in its kernels"):
            make(libraries()).cache_shape(3, 64, 512, 64, "fp8_ds_mla")


def test_lists_of_picked_slots_hold_the_valid_ones_in_order() -> None:
    """Ragged, and in rows with the valid ones first; a row without any has a dummy."""
    slots = torch.tensor([[5, -1, 3], [-1, -1, -1], [-1, 9, 9]], dtype=torch.int32)
    starts, listed = picked_lists(slots, torch.tensor([2, 0, 2]))
    assert starts.tolist() == [0, 2, 2, 4]
    assert listed.tolist() == [5, 3, 9, 9, 0, 0, 0, 0, 0]
    assert packed_first(slots).tolist() == [[5, 3, -1], [0, -1, -1], [9, 9, -1]]


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_backend_of_that_name_is_the_adapter(name: str) -> None:
    """open_backend gives it, with the indexer's calls."""
    runtime = open_backend(name)
    assert type(runtime) is LIBRARIES[name][0]
    assert runtime.get_name() == name
    assert runtime.index_cache_shape(2, 64, 128) == (2, 64, 132)
