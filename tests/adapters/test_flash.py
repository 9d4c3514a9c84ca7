"""FLASH_ATTN and FLASH_ATTN_DIFFKV against the signatures of each FlashAttention there is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnctl.exits import AbsentError, InputError
from attnctl.kernels.metadata_checks import checked_batch
from attnctl.kernels.paged.flash import FlashMetadata
from attnctl.kernels.paged.flash_runtime import FlashAttention
from attnctl.ops.paged_cases import case
from attnctl.ops.paged_trial import try_case
from tests.adapters import fakes
from tests.adapters.trying import faults

EVERYWHERE = ("plain", "window", "chunk", "softcap", "two_sided", "encoder", "fused_qkv", "padded")


def runtime(
    load: Any, capability: tuple[int, int] = (9, 0), name: str = "FLASH_ATTN"
) -> FlashAttention:
    return FlashAttention(name, load, lambda device: capability)


def test_fa2_of_its_own_package_is_right_on_pages_of_256() -> None:
    """Positional order, summed lengths and windows are those of flash-attn 2.8."""
    adapter = runtime(fakes.loader(flash_attn=fakes.fa2()), (8, 0))
    assert faults(adapter, "plain", "window", "softcap", "alibi", "padded", page=256) == {}


def test_fa2_of_its_own_package_refuses_smaller_pages() -> None:
    """The sentence names both sizes and the way out."""
    adapter = runtime(fakes.loader(flash_attn=fakes.fa2()), (8, 0))
    with pytest.raises(InputError, match="pages of 256 tokens and multiples, found 16"):
        try_case(adapter, case())


def test_fa3_of_its_own_package_is_right() -> None:
    """flash_attn_with_kvcache takes packed queries over a paged cache."""
    adapter = runtime(fakes.loader(flash_attn_interface=fakes.fa3()))
    assert faults(adapter, *EVERYWHERE, "hnd") == {}


def test_fa4_of_its_own_package_is_right_with_sinks() -> None:
    """None stands for a side without a bound, and the output comes with its logarithms."""
    adapter = runtime(fakes.loader(flash_attn__cute=fakes.fa4()), (10, 0))
    assert faults(adapter, *EVERYWHERE, "sinks") == {}


@pytest.mark.parametrize(
    ("versions", "capability", "features"),
    [
        ((2, 3), (9, 0), (*EVERYWHERE, "hnd")),
        ((2,), (8, 6), (*EVERYWHERE, "alibi")),
        ((3, 4), (10, 0), ("plain", "sinks", "chunk")),
    ],
)
def test_the_versions_that_vllm_carries_are_right(
    versions: tuple[int, ...], capability: tuple[int, int], features: tuple[str, ...]
) -> None:
    """One function serves all three, and writes into the output that it is given."""
    load = fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(*versions))
    assert faults(runtime(load, capability), *features) == {}


def test_fa3_takes_sinks_in_bfloat16() -> None:
    """A bfloat16 layer's sinks go through; the output's precision hides the rounding."""
    load = fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(2, 3))
    assert faults(runtime(load), "sinks", dtype="bfloat16") == {}


def test_fa3_rounds_the_query_to_fp8_beside_an_fp8_cache() -> None:
    """Its budget is that of the specification with such a query; scales go in by batch and head."""
    own = runtime(fakes.loader(flash_attn_interface=fakes.fa3()))
    carried = runtime(fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(2, 3)))
    assert faults(own, "fp8") == faults(carried, "fp8") == {}


def test_no_version_is_handed_an_e5m2_cache() -> None:
    """FlashAttention 3 stops at one with an error of its own, deep inside its C++."""
    adapter = runtime(fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(2, 3)))
    with pytest.raises(InputError, match="fp8_e5m2 cache; take fp8_e4m3"):
        try_case(adapter, case(dtype="bfloat16", kv_cache_dtype="fp8_e5m2"))


def test_diffkv_is_right_with_fa3_and_fa4_and_never_takes_fa2() -> None:
    """K of 192 and V of 128 lie side by side, and are read in place."""
    shape = {"head_size": 192, "head_size_v": 128, "heads": 4, "kv_heads": 1}
    own = fakes.loader(flash_attn_interface=fakes.fa3())
    assert faults(runtime(own, name="FLASH_ATTN_DIFFKV"), "plain", "window", **shape) == {}
    carried = fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(2, 4))
    blackwell = runtime(carried, (10, 0), "FLASH_ATTN_DIFFKV")
    assert faults(blackwell, "plain", "sinks", **shape) == {}
    with pytest.raises(InputError, match="no version takes this device"):
        try_case(runtime(carried, (8, 0), "FLASH_ATTN_DIFFKV"), case(**shape))
    unpaired = case(head_size=80, head_size_v=48)
    with pytest.raises(InputError, match="cannot be loaded: FA4"):
        try_case(runtime(own, name="FLASH_ATTN_DIFFKV"), unpaired)


def test_what_is_missing_is_said_for_each_version() -> None:
    """All that was tried is in the sentence."""
    with pytest.raises(InputError, match=r"FA3: flash_attn_interface: No module .*FA2: flash_attn"):
        try_case(runtime(fakes.loader()), case())


def test_what_is_not_installed_is_told_from_what_is_broken() -> None:
    """A module without its own dependency, or of another ABI, is there and does not load."""

    def broken(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'einops'", name="einops")

    def foreign(name: str) -> Any:
        raise ImportError("undefined symbol: _ZN3c10")

    old = fakes.loader(vllm__vllm_flash_attn=fakes.vllm_flash(2))
    for load in (fakes.loader(), old):
        with pytest.raises(AbsentError):
            try_case(runtime(load), case(head_size=512))
    for load in (broken, foreign):
        with pytest.raises(InputError) as raised:
            try_case(runtime(load), case())
        assert not isinstance(raised.value, AbsentError)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"chunk": 24}, "a chunk of 24 tokens is no whole number of 16-token pages"),
        ({"ranges": True}, "bidirectional ranges"),
        ({"sinks": True}, "FA3: flash_attn_interface: it has no argument for sinks"),
    ],
)
def test_what_no_argument_expresses_is_refused(changes: dict[str, Any], says: str) -> None:
    """Nothing that the function has no argument for is left out in silence."""
    adapter = runtime(fakes.loader(flash_attn_interface=fakes.fa3()))
    with pytest.raises(InputError, match=says):
        try_case(adapter, case(queries="33", contexts="70", **changes))


def test_the_fakes_refuse_what_the_package_would() -> None:
    """An argument of another name is a TypeError, as is one left out."""
    function = fakes.fa2().flash_attn_varlen_func
    with pytest.raises(TypeError, match="seqused_k"):
        function(*range(7), seqused_k=1)
    with pytest.raises(TypeError, match="max_seqlen_k"):
        function(*range(6))


def test_a_version_that_was_named_says_whether_it_can_be_loaded() -> None:
    """Without a batch: by loading its packages, as the first batch would."""
    adapter = runtime(fakes.loader(flash_attn_interface=fakes.fa3()))
    assert adapter.lack() == ""
    assert adapter.with_knobs({}, "fa3").lack() == ""
    assert "no argument for sinks" in adapter.with_knobs({}, "fa3").lack(sinks=True)
    said = adapter.with_knobs({}, "fa4").lack()
    assert said.startswith("FLASH_ATTN: FlashAttention cannot be loaded: FA4: flash_attn.cute: ")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_batch_that_was_built_is_looked_at_no_more(device: str) -> None:
    """Each layer's call takes it as it is; where a GPU's would lie, with its contexts summed up."""
    adapter = runtime(fakes.loader(flash_attn=fakes.fa2()), (8, 0))
    sizes = {"starts": (3,), "lengths": (2,), "table": (2, 4), "slots": (5,)}
    given = {one: torch.zeros(size, dtype=torch.int32) for one, size in sizes.items()}
    given["starts"][:], given["lengths"][:] = torch.tensor([0, 3, 5]), torch.tensor([9, 2])
    tensors = [tensor.to(device) for tensor in given.values()]
    batch = adapter.build_metadata(*tensors, max_query_len=3, max_seq_len=9)
    assert checked_batch("FLASH_ATTN", batch) is batch
    if device == "meta":
        assert isinstance(batch, FlashMetadata)
        sums = batch.context_start_loc
        assert (sums.shape, sums.dtype) == ((3,), torch.int32)
        assert (batch.max_query_len, batch.max_seq_len) == (3, 9)
