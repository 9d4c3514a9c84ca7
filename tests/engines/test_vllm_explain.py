"""vLLM's decision for a machine and a model: words, flags, notes and block sizes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from attnctl.engines import vllm
from attnctl.exits import InputError
from attnctl.findings import Verdict
from attnctl.layer import Options
from attnctl.machine import Gpu, Machine, Vendor
from attnctl.model.spec import LayerGroup, ModelSpec
from tests.engines.invented import DIFFKV, FULL, GDN, SPARSE, X86, amd, intel, nvidia, processor


def explain(machine: Machine, group: LayerGroup, **options: Any) -> vllm.EngineDecision:
    spec = ModelSpec(model_type="invented", groups=(group,), dtype="bfloat16")
    return vllm.explain(machine, group, Options(**options), spec)


def said(decision: vllm.EngineDecision, words: str) -> bool:
    return any(words in note for note in decision.notes)


def test_a_pick_comes_with_the_flags_that_pin_it() -> None:
    """The three flags name the backend, the cache dtype and the block size of this group."""
    found = explain(nvidia((9, 0)), FULL, kv_cache_dtype="fp8")
    assert (found.engine, found.version, found.pick) == ("vllm", "0.33.0", "FLASH_ATTN")
    assert found.error is None
    assert found.flags == {
        "--attention-backend": "FLASH_ATTN",
        "--kv-cache-dtype": "fp8",
        "--block-size": "16",
    }


def test_every_reason_has_both_sides() -> None:
    """Rejected candidates keep all findings, with the slug as code and words for both sides."""
    found = explain(nvidia((7, 5)), FULL, dtype="float16")
    assert found.pick == "TRITON_ATTN"
    (why,) = found.rejected["FLASH_ATTN"]
    assert (why.code, why.found) == ("compute_capability", "7.5")
    assert why.wanted == "compute capability 8.0 or newer"
    assert why.verdict is Verdict.UNMET


def test_a_missing_package_names_its_fix_and_an_unasked_one_is_unknown() -> None:
    """Not installed and never looked for are two answers."""
    (absent,) = explain(nvidia((9, 0)), FULL).rejected["FLASHINFER"]
    assert (absent.verdict, absent.fix) == (Verdict.UNMET, "install flashinfer")
    bare = msgspec.structs.replace(nvidia((9, 0)), packages={})
    found = explain(bare, FULL)
    assert found.rejected["FLASHINFER"][0].verdict is Verdict.UNKNOWN
    assert said(found, "vLLM was not looked for")


def test_flashinfer_counts_by_what_it_brings() -> None:
    """Sinks on Blackwell want cubins; SM90's sparse kernels want 0.6.18."""
    sinks = msgspec.structs.replace(FULL, head_size=64, sinks=True)
    assert explain(nvidia((10, 0), "flashinfer"), sinks).pick == "FLASH_ATTN"
    cubins = nvidia((10, 0), "flashinfer", "flashinfer_cubin")
    assert explain(cubins, sinks).pick == "FLASHINFER"
    for version, rejected in (("0.6.17", True), ("0.6.18.post1", False), ("0.7.2+cu13", False)):
        machine = nvidia((9, 0), "flashinfer_cubin", flashinfer=version)
        assert ("FLASHINFER_MLA_SPARSE_SM90" in explain(machine, SPARSE).rejected) is rejected


def test_a_forced_backend_that_does_not_fit_is_an_error_with_its_reasons() -> None:
    """The error is one sentence; the reasons stand beside it; the automatic list is kept."""
    found = explain(nvidia((8, 0)), SPARSE, backend=(("*", "FLASHMLA"),))
    assert (found.pick, found.requested, found.flags) == (None, "FLASHMLA", {})
    assert found.error is not None
    assert found.error.startswith("ValueError: FLASHMLA is forced and does not take this layer")
    assert {finding.code for finding in found.forced} == {"compute_capability", "sparse"}
    assert "TRITON_MLA" in found.rejected


def test_forcing_by_kind_leaves_other_kinds_alone() -> None:
    """A backend for sliding layers says nothing about full ones."""
    options = {"backend": (("sliding", "TRITON_ATTN"),)}
    sliding = msgspec.structs.replace(FULL, kind="sliding", window=128)
    assert explain(nvidia((9, 0)), sliding, **options).pick == "TRITON_ATTN"
    assert explain(nvidia((9, 0)), FULL, **options).pick == "FLASH_ATTN"


def test_a_block_size_that_alone_costs_a_backend_is_named() -> None:
    """vLLM warns about it; so does the note."""
    machine = nvidia((10, 0), "flashinfer", "flashinfer_cubin")
    dense = msgspec.structs.replace(SPARSE, kind="mla", indexer=None)
    found = explain(machine, dense, block_size=16)
    assert found.pick == "TRITON_MLA"
    assert said(found, "--block-size 16 alone keeps FLASHINFER_MLA")
    assert found.block_size == 16


def test_the_layer_fixes_the_backend_of_states() -> None:
    """Nothing is selected, so nothing is rejected and no flag pins it."""
    for kind, name in (("gdn", "GDN_ATTN"), ("kda", "GDN_ATTN"), ("mamba1", "MAMBA1_ATTN")):
        found = explain(nvidia((9, 0)), msgspec.structs.replace(GDN, kind=kind))
        assert (found.pick, found.rejected, found.flags) == (name, {}, {})


def test_layers_that_vllm_does_not_serve_are_said_so() -> None:
    """Recurrent states that no backend keeps are an error; cacheless blocks are no question."""
    other = LayerGroup(kind="recurrent_other", layers=(0,))
    assert "recurrent_other" in str(explain(nvidia((9, 0)), other).error)
    nothing = explain(nvidia((9, 0)), LayerGroup(kind="none", layers=(0,)))
    assert (nothing.pick, nothing.error) == (None, None)
    with pytest.raises(InputError, match="head_size is not known"):
        explain(nvidia((9, 0)), LayerGroup(kind="full", layers=(0,)))


def test_encoders_without_a_cache_get_no_block_size() -> None:
    """There is no block to size, and no flag for one."""
    encoder = msgspec.structs.replace(FULL, kind="encoder_self", head_size=64)
    found = explain(nvidia((9, 0)), encoder)
    assert (found.pick, found.block_size) == ("FLASH_ATTN", None)
    assert "--block-size" not in found.flags


@pytest.mark.parametrize(
    ("machine", "pick"),
    [
        (nvidia((9, 0)), "FLASH_ATTN_DIFFKV"),
        (nvidia((10, 0)), "FLASH_ATTN_DIFFKV"),
        (nvidia((8, 0)), "TRITON_ATTN_DIFFKV"),
        (nvidia((12, 0)), "TRITON_ATTN_DIFFKV"),
        (amd("gfx942", "aiter"), "TRITON_ATTN_DIFFKV"),
    ],
)
def test_unequal_widths_take_what_their_model_class_takes(machine: Machine, pick: str) -> None:
    """FlashAttention 3 or 4 where it runs, else Triton."""
    assert explain(machine, DIFFKV).pick == pick


def test_checkpoints_run_in_a_dtype_that_the_device_has() -> None:
    """Turing has no bfloat16, and float32 checkpoints run in 16 bits; an option overrules both."""
    turing = explain(nvidia((7, 5)), FULL)
    assert said(turing, "vLLM runs bfloat16 checkpoints in float16 here")
    wide = ModelSpec(model_type="invented", groups=(FULL,), dtype="float32")
    machine = nvidia((9, 0))
    assert vllm.explain(machine, FULL, Options(), wide).pick == "FLASH_ATTN"
    assert vllm.explain(machine, FULL, Options(dtype="float32"), wide).pick == "TRITON_ATTN"
    assert said(vllm.explain(machine, FULL, Options()), "no dtype is stated")


def test_a_quantised_checkpoint_cache_counts_where_no_option_does() -> None:
    """FLASH_ATTN takes no e5m2, whoever asks for it."""
    spec = ModelSpec(
        model_type="invented",
        groups=(FULL,),
        dtype="bfloat16",
        kv_cache_dtype_from_checkpoint="fp8_e5m2",
    )
    machine = nvidia((9, 0))
    assert vllm.explain(machine, FULL, Options(), spec).pick == "TRITON_ATTN"
    told = Options(kv_cache_dtype="bfloat16")
    assert vllm.explain(machine, FULL, told, spec).pick == "FLASH_ATTN"


def test_rocm_s_switch_is_off_and_its_effect_is_told() -> None:
    """Aiter is installed but not switched on: the note says what the switch would change."""
    found = explain(amd("gfx942", "aiter"), msgspec.structs.replace(FULL, sinks=True))
    assert found.pick == "ROCM_AITER_UNIFIED_ATTN"
    assert found.block_size == 64
    assert said(found, "VLLM_ROCM_USE_AITER=1 would change the pick to ROCM_AITER_FA")
    assert not said(explain(amd("gfx90a", "aiter"), FULL), "VLLM_ROCM_USE_AITER")


def test_an_encoder_decoder_model_loses_rocm_attn_in_every_group() -> None:
    """The list looks at the model: its decoder's self-attention is affected too."""
    cross = msgspec.structs.replace(FULL, kind="cross", head_size=64)
    own = msgspec.structs.replace(FULL, head_size=64)
    spec = ModelSpec(model_type="invented", groups=(own, cross), dtype="bfloat16")
    machine = amd("gfx1100")
    assert vllm.explain(machine, own, Options(), spec).pick == "TRITON_ATTN"
    assert explain(machine, own).pick == "ROCM_ATTN"


def test_what_a_platform_does_not_check_is_said() -> None:
    """XPU picks FLASH_ATTN for a head size that it does not declare; CPU ignores forced names."""
    odd = msgspec.structs.replace(FULL, head_size=100)
    assert said(explain(intel(), odd), "not checked at selection: FLASH_ATTN declares head size")
    cpu = explain(processor("avx2"), FULL, backend=(("*", "FLASHINFER"),))
    assert cpu.pick == "CPU_ATTN"
    assert said(cpu, "vLLM ignores a forced FLASHINFER here")
    assert "--attention-backend" not in cpu.flags


@pytest.mark.parametrize(
    ("machine", "kv_cache_dtype", "pick"),
    [
        (processor("avx2"), "fp8", None),
        (processor("avx2", "avx512f"), "fp8", "CPU_ATTN"),
        (processor("avx2", "avx512f", "amx_tile"), "fp8", "CPU_ATTN"),
        (processor("neon", "sve2", arch="aarch64"), "fp8", None),
        (processor("neon", arch="aarch64"), "auto", "CPU_ATTN"),
    ],
)
def test_a_processor_counts_by_its_isa(
    machine: Machine, kv_cache_dtype: str, pick: str | None
) -> None:
    """An fp8 cache wants AVX-512 or AMX."""
    found = explain(machine, FULL, kv_cache_dtype=kv_cache_dtype)
    assert found.pick == pick
    assert (found.error is None) == (pick is not None)


def test_a_gpu_without_a_capability_is_refused_in_one_sentence() -> None:
    """vLLM could not choose either."""
    gpu = Gpu(index=0, name="Invented")
    machine = Machine(name="box", nvidia=Vendor(status="ok", gpus=(gpu,)), cpu=X86)
    with pytest.raises(InputError, match="box: Invented has no compute capability"):
        explain(machine, FULL)


def test_a_decision_goes_to_json_and_back() -> None:
    """One value serves table, JSON and tests."""
    found = explain(nvidia((8, 0)), FULL)
    assert msgspec.json.decode(msgspec.json.encode(found), type=vllm.EngineDecision) == found
