"""The adapters of latent attention against their libraries' signatures, limits and numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from attnctl.backends.flash_attn_mla.kernel import FlashAttnMla
from attnctl.backends.flashinfer_mla.kernel import FlashInferMla
from attnctl.backends.flashmla.kernel import FlashMla
from attnctl.backends.rocm_aiter_mla.kernel import AiterMla
from attnctl.exits import AbsentError, InputError
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata
from tests.adapters import latent_fakes as fakes
from tests.adapters import latent_flash_fakes as flash_fakes
from tests.adapters.fakes import loader
from tests.adapters.trying import libraries, wrong_batches

VENDORED = "vllm__third_party__flashmla__flash_mla_interface"
FP8 = "vllm__v1__attention__ops__flashmla"

BATCHES: dict[str, dict[str, Any]] = {
    "decode": {"queries": "1+1+1", "contexts": "17+64+150"},
    "several": {"queries": "3+1+2", "contexts": "70+5+64"},
    "prefill": {"queries": "7+12", "contexts": "7+12"},
    "empty": {"queries": "0+1+0", "contexts": "9+20+0"},
    "padded": {"queries": "1+1", "contexts": "20+33", "padding": 2},
    "nothing": {"queries": "", "contexts": ""},
}
wrong = partial(wrong_batches, "mla", BATCHES)


@pytest.mark.parametrize("package", ["flash-mla", "vllm"])
def test_flashmla_decodes_every_token_as_a_sequence(package: str) -> None:
    """From either package; several tokens see no more than what came before them."""
    module = flash_fakes.flashmla(package)
    name = "flash_mla" if package == "flash-mla" else VENDORED
    runtime = FlashMla(libraries({name: module}))
    assert wrong(runtime) == {}
    assert wrong(runtime, "decode", dtype="float16") == {}
    assert module.calls == ["dense"] * 6


def test_flashmla_cuts_pages_of_128_in_two() -> None:
    """Its kernel has pages of 64: the cache is seen as twice as many, the block table too."""
    module = flash_fakes.flashmla()
    assert wrong(FlashMla(libraries({VENDORED: module})), "several", "prefill", page=128) == {}
    assert module.calls == ["dense"] * 2


def test_flashmla_takes_fp8_caches_by_vllms_extension() -> None:
    """FP8 queries too: the budget is theirs, and kv_scale is not lost."""
    runtime = FlashMla(libraries({FP8: flash_fakes.flashmla_fp8()}))
    assert wrong(runtime, kv_cache_dtype="fp8_e4m3") == {}
    query, cache = torch.zeros(1, 1, 576), torch.zeros(1, 64, 576).to(torch.float8_e4m3fn)
    assert runtime.query_dtype(query, cache) is torch.float8_e4m3fn


def test_flashmla_keeps_one_schedule_for_the_layers_of_a_batch() -> None:
    """The second layer runs on the first one's; another batch gets its own."""
    made: list[Any] = []
    module = flash_fakes.flashmla()
    schedule = module.get_mla_metadata
    module.get_mla_metadata = lambda: made.append(schedule()) or made[-1]
    runtime = FlashMla(libraries({VENDORED: module}))
    query, cache = torch.ones(2, 3, 576).bfloat16(), torch.ones(2, 64, 576).bfloat16()
    for lengths in ((5, 9), (64, 2)):
        metadata = batch(runtime, *lengths)
        for _ in range(2):
            out = runtime.forward(query, cache, metadata, Latent(scale=0.1, kv_lora_rank=512))
            assert torch.equal(out, torch.ones_like(out))
    assert len(made) == 2


def batch(runtime: Any, *lengths: int) -> Metadata:
    count = len(lengths)
    made: Metadata = runtime.build_metadata(
        torch.arange(count + 1).int(),
        torch.tensor(lengths).int(),
        torch.arange(count).int()[:, None],
        torch.full((count,), -1),
        max_query_len=1,
        max_seq_len=max(lengths),
    )
    return made


@pytest.mark.parametrize(
    "modules",
    [
        {"flash_attn_interface": flash_fakes.own_flash3()},
        {"vllm__vllm_flash_attn": flash_fakes.vllm_flash3()},
    ],
)
def test_flash_attention_3_takes_the_latent_part_as_a_second_query(modules: Any) -> None:
    """From either package, without the bundled kernels; rows of 256 + 64 too."""
    runtime = FlashAttnMla(loader(**modules))
    assert wrong(runtime) == {}
    assert wrong(runtime, "several", "prefill", heads=40) == {}
    assert wrong(runtime, "prefill", heads=16, page=128) == {}
    assert wrong(runtime, "decode", "several", dtype="float16", page=16) == {}
    assert wrong(runtime, "several", lora=256) == {}


def test_intels_function_takes_the_row_as_the_key() -> None:
    """One token of a sequence at a time; more of them go to the bundled kernels."""
    modules = {"vllm_xpu_kernels__flash_attn_interface": flash_fakes.xpu_flash()}
    alone = FlashAttnMla(loader(**modules), lambda tensor: "xpu")
    assert wrong(alone, "decode", "empty", "padded") == {}
    assert wrong(FlashAttnMla(libraries(), lambda tensor: "xpu"), "several", "prefill") == {}
    with pytest.raises(ModuleNotFoundError, match="vllm_xpu_kernels"):
        wrong(FlashAttnMla(libraries(), lambda tensor: "xpu"), "decode")


def test_flashinfer_decodes_with_the_block_table_filled_up() -> None:
    """Rows of 512 + 64 and 256 + 64; 80 heads are filled up to 128, larger pages are cut."""
    module = fakes.flashinfer()
    runtime = FlashInferMla(loader(flashinfer__mla=module))
    assert wrong(runtime) == {}
    assert wrong(runtime, "several", lora=256, page=32) == {}
    assert wrong(runtime, "decode", heads=80) == {}
    assert wrong(runtime, "prefill", page=128) == {}
    assert wrong(runtime, kv_cache_dtype="fp8_e4m3") == {}
    assert set(module.calls) == {"dense"}


@pytest.mark.parametrize(("package", "called"), [("aiter", 4), ("amd-aiter", 0)])
def test_aiter_decodes_listed_rows_and_the_rest_is_the_bundled_kernels(
    package: str, called: int
) -> None:
    """A release that leaves the log-sum-exp unwritten is not asked for one."""
    module = fakes.aiter(package)
    runtime = AiterMla(libraries({"aiter__mla": module}))
    assert wrong(runtime) == {}
    assert wrong(runtime, "decode", heads=33) == {}
    assert len(module.calls) == called


@pytest.mark.parametrize("heads", [3, 16, 100])
def test_the_released_aiter_decodes_without_a_log_sum_exp(heads: int) -> None:
    """16 heads and 128 are what it has; others are filled up."""
    module = fakes.aiter("amd-aiter")
    runtime = AiterMla(loader(aiter__mla=module))
    query = torch.randn(2, heads, 576, generator=torch.Generator().manual_seed(1)).bfloat16()
    cache = torch.ones(2, 64, 576).bfloat16()
    params = Latent(scale=0.1, kv_lora_rank=512)
    out = runtime.forward(query, cache, batch(runtime, 5, 9), params)
    assert torch.equal(out, torch.ones_like(out))
    assert module.calls == ["decode"]


LIBRARIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "FLASHMLA": (FlashMla, {VENDORED: flash_fakes.flashmla()}),
    "FLASH_ATTN_MLA": (FlashAttnMla, {"flash_attn_interface": flash_fakes.own_flash3()}),
    "FLASHINFER_MLA": (FlashInferMla, {"flashinfer__mla": fakes.flashinfer()}),
    "ROCM_AITER_MLA": (AiterMla, {"aiter__mla": fakes.aiter("aiter")}),
}


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float32"},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"lora": 192, "rope": 32},
        {"rope": 0},
        {"form": "uncompressed", "chunk": 16, "nope": 32, "v": 32},
    ],
)
def test_what_a_library_does_not_compute_the_bundled_kernels_do(
    name: str, changes: dict[str, Any]
) -> None:
    """Other dtypes and widths, and the uncompressed form, over the same cache."""
    make, modules = LIBRARIES[name]
    assert wrong(make(libraries(modules)), "several", **changes) == {}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_cache_scale_belongs_to_the_values_of_any_cache(name: str) -> None:
    """Attention over stored rows with a kv_scale is attention over the rows that they stand for."""
    make, modules = LIBRARIES[name]
    runtime = make(libraries(modules))
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(2, 3, 576, generator=generator).bfloat16()
    cache = torch.randn(2, 64, 576, generator=generator).bfloat16()
    metadata = batch(runtime, 30, 64)
    plain = runtime.forward(query, 2 * cache, metadata, Latent(scale=0.05, kv_lora_rank=512))
    params = Latent(scale=0.05, kv_lora_rank=512, kv_scale=2.0)
    assert torch.equal(runtime.forward(query, cache, metadata, params), plain)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (FlashMla, "FLASHMLA: FlashMLA cannot be loaded: flash_mla: .*; vllm.third_party"),
        (FlashAttnMla, "FLASH_ATTN_MLA: FlashAttention cannot be loaded: FA3: flash_attn_int"),
        (FlashInferMla, "FLASHINFER_MLA: FlashInfer cannot be loaded: No module"),
    ],
)
def test_a_library_that_is_not_there_is_said(make: Any, says: str) -> None:
    """On NVIDIA devices no other kernel stands in for the one that was asked for."""
    with pytest.raises(AbsentError, match=says):
        wrong(make(libraries()), "decode")


def test_rocm_decodes_without_aiter_on_the_bundled_kernels() -> None:
    """As the other ROCm backends do."""
    assert wrong(AiterMla(libraries())) == {}


@pytest.mark.parametrize("make", [FlashMla, AiterMla])
def test_pages_that_lie_apart_are_refused_where_rows_must_not(make: Any) -> None:
    """Nothing is copied behind the caller's back."""
    runtime = make(
        libraries({VENDORED: flash_fakes.flashmla(), "aiter__mla": fakes.aiter("aiter")})
    )
    cache = torch.ones(2, 2, 128, 576).bfloat16()[:, 0]
    query, params = torch.ones(2, 3, 576).bfloat16(), Latent(scale=0.1, kv_lora_rank=512)
    with pytest.raises(InputError, match="one stride apart"):
        runtime.forward(query, cache, batch(runtime, 5, 9), params, lse=torch.ones(2, 3))


@pytest.mark.parametrize(
    ("make", "page", "tries"),
    [(FlashMla, 48, 64), (FlashAttnMla, 24, 32), (FlashInferMla, 40, 64)],
)
def test_a_block_size_that_the_library_has_not_is_refused(make: Any, page: int, tries: int) -> None:
    """With the next that it has."""
    runtime = make(libraries())
    with pytest.raises(InputError, match=rf"it is {page}\. Try {tries}"):
        runtime.cache_shape(4, page, 512, 64)
    assert runtime.cache_shape(4, 64, 512, 64) == (4, 64, 576)
    assert AiterMla(libraries()).cache_shape(4, 1, 512, 64) == (4, 1, 576)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_looked_for_once(name: str) -> None:
    """A failed import looks through every folder of the path: no layer should wait for that."""
    make, modules = LIBRARIES[name]
    there, asked = libraries(modules), []

    def load(module: str) -> Any:
        asked.append(module)
        return there(module)

    runtime = make(load)
    query, cache = torch.ones(2, 3, 576).bfloat16(), torch.ones(2, 64, 576).bfloat16()
    metadata = batch(runtime, 5, 9)
    for _ in range(3):
        runtime.forward(query, cache, metadata, Latent(scale=0.1, kv_lora_rank=512))
    assert len(asked) == len(set(asked))
