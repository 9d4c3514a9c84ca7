"""What users of serving engines report about backend selection, each as a case of our own."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.findings import Verdict
from attnctl.machine import Machine
from tests import machine_factory as box
from tests.layer_factory import BY_OP, decide, eligible, group, latent, pick, reasons

SPARSE = latent(topk=2048)
A100 = box.cuda(8)


@pytest.mark.parametrize(
    ("machine", "claimants"),
    [
        (box.cuda(9), {"FLASHMLA_SPARSE", "TRITON_MLA_SPARSE"}),
        (box.cuda(12, 1), {"TRITON_MLA_SPARSE"}),
        (box.cuda(8), {"TRITON_MLA_SPARSE"}),
        (box.rocm("gfx942"), {"ROCM_AITER_MLA_SPARSE", "TRITON_MLA_SPARSE"}),
        (box.xpu(), {"XPU_MLA_SPARSE", "TRITON_MLA_SPARSE"}),
        (box.cpu(), {"CPU_MLA_SPARSE"}),
    ],
    ids=["9.0", "12.1", "8.0", "gfx942", "xpu", "cpu"],
)
def test_sparse_latent_attention_is_split_by_platform(
    machine: Machine, claimants: set[str]
) -> None:
    """Each platform has its own kernel or the portable one; a dense backend never stands in."""
    decision = decide(SPARSE, machine)
    assert set(eligible(decision)) == claimants
    assert decision.group.head_size == 576
    for dense in ("TRITON_MLA", "FLASHMLA", "CPU_MLA"):
        found = reasons(decision, dense)["operation"]
        assert (found.wanted, found.found) == ("mla", "mla_sparse")


def test_without_any_claimant_every_candidate_says_why() -> None:
    """No Triton on an Ampere card: nothing is picked and nobody is left without a reason."""
    decision = decide(SPARSE, box.cuda(8, packages=("torch", "vllm")))
    assert decision.pick is None
    assert all(candidate.reasons for candidate in decision.candidates)
    assert reasons(decision, "TRITON_MLA_SPARSE")["package_missing"].fix == "pip install triton"


def test_sinks_on_ampere_leave_one_portable_backend() -> None:
    """gpt-oss on an RTX 3090: three libraries refuse, each with its own reason."""
    layers = group("sliding", num_heads=64, head_size=64, window=128, sinks=True)
    decision = decide(layers, box.cuda(8, 6))
    assert eligible(decision) == ["TRITON_ATTN"]
    flash = reasons(decision, "FLASH_ATTN")["sinks"]
    assert flash.wanted == "FA3 or FA4 and compute capability 9.0 or newer for attention sinks"
    assert flash.found == "FA2 on compute capability 8.6"
    assert reasons(decision, "FLASHINFER")["sinks"].found == (
        "no such kernels on compute capability 8.6"
    )
    assert set(reasons(decision, "FLEX_ATTENTION")) == {"sinks"}


SIZES = (16, 24, 40, 72, 80, 88, 96, 112, 192, 256, 512)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("TRITON_ATTN", SIZES[2:]),
        ("FLASHINFER", (256, 512)),
        ("FLASH_ATTN", SIZES[:-1]),
        ("FLEX_ATTENTION", SIZES),
    ],
)
def test_odd_head_sizes_on_an_a100(name: str, taken: tuple[int, ...]) -> None:
    """Each kernel's own limits, and no other reason than the head size."""
    for size in SIZES:
        found = reasons(decide(group(head_size=size), A100), name)
        assert set(found) == (set() if size in taken else {"head_size"}), size


@pytest.mark.parametrize("size", [80, 96, 112, 192, 256, 512, 16, 24, 40, 72, 88])
def test_the_processor_takes_every_head_size_in_eights(size: int) -> None:
    """Where libraries list a dozen sizes, the bundled kernel takes any multiple of 8."""
    assert pick(group(head_size=size), box.cpu()) == "CPU_ATTN"


def test_a_head_size_beyond_every_rule_of_the_processor_falls_to_flex() -> None:
    """20 is no multiple of 8."""
    assert pick(group(head_size=20), box.cpu()) == "FLEX_ATTENTION"


@pytest.mark.parametrize(
    ("cc", "kv_dtype", "verdict"),
    [
        ((8, 6), "fp8", "unmet"),
        ((8, 6), "fp8_e4m3", "unmet"),
        ((8, 6), "fp8_e5m2", "met"),
        ((8, 6), "bfloat16", None),
        ((8, 9), "fp8", "met"),
        ((8, 9), "fp8_e4m3", "met"),
        ((8, 9), "fp8_e5m2", "met"),
        ((7, 5), "fp8", "unmet"),
        ((7, 5), "fp8_e5m2", "unmet"),
    ],
)
def test_fp8_caches_are_decided_at_selection(
    cc: tuple[int, int], kv_dtype: str, verdict: str | None
) -> None:
    """Not in a constructor, and not by a compile error minutes after the start."""
    decision = decide(group(), box.cuda(*cc), dtype="float16", kv_cache_dtype=kv_dtype)
    (candidate,) = [c for c in decision.candidates if c.name == "TRITON_ATTN"]
    found = [f for f in candidate.findings if f.code == "fp8_hardware"]
    assert [f.verdict.value for f in found] == ([] if verdict is None else [verdict])


def test_e5m2_on_ampere_says_that_cross_compilation_proved_it() -> None:
    """The reader learns what the claim rests on, and what would prove it."""
    decision = decide(group(), box.cuda(8, 6), kv_cache_dtype="fp8_e5m2")
    (candidate,) = [c for c in decision.candidates if c.name == "TRITON_ATTN"]
    (found,) = [f for f in candidate.findings if f.code == "fp8_hardware"]
    assert found.found == "8.6 (by cross-compilation; attnctl smoke proves it)"


def test_e4m3_on_ampere_suggests_e5m2() -> None:
    """The fix is the one change that helps."""
    decision = decide(group(), box.cuda(8, 6), kv_cache_dtype="fp8")
    fix = reasons(decision, "TRITON_ATTN")["fp8_hardware"].fix
    assert fix == "--kv-cache-dtype fp8_e5m2"
    assert pick(group(), box.cuda(8, 6), kv_cache_dtype="fp8_e5m2") == "FLASHINFER"


def test_bfloat16_on_turing_is_refused_and_float16_suggested() -> None:
    """A T4 has no bfloat16: nothing is picked, and the fix says what to pass."""
    decision = decide(group(), box.cuda(7, 5))
    assert decision.pick is None
    for name in ("TRITON_ATTN", "FLEX_ATTENTION"):
        (finding,) = reasons(decision, name).values()
        assert finding.code == "device_dtype"
        assert finding.found == "compute capability 7.5"
        assert finding.fix == "--dtype float16"
    assert pick(group(), box.cuda(7, 5), dtype="float16") == "TRITON_ATTN"


def test_bert_is_not_given_to_a_backend_for_decoders() -> None:
    """An encoder-only model caches nothing and sees both sides."""
    layers = group("encoder_self", num_heads=12, num_kv_heads=12, head_size=64)
    decision = decide(layers, A100, dtype="float16")
    assert decision.group.attn_type == "encoder_only"
    assert not decision.group.needs_kv_cache
    assert not decision.group.causal
    assert {"TRITON_ATTN", "FLEX_ATTENTION"} <= set(eligible(decision))
    assert "encoder_only" in reasons(decision, "TRITON_ATTN_DIFFKV")
    assert set(reasons(decision, "FLASHINFER")) == {"encoder_only"}
    assert decision.pick is not None
    assert decision.pick.block_size is None


@pytest.mark.parametrize(
    ("machine", "layers", "user", "block"),
    [
        (box.cuda(10), latent(), None, 32),
        (box.cuda(10), latent(), 64, 64),
        (box.cuda(8), group(sinks=True), 272, 272),
        (box.rocm("gfx942"), latent(), 64, 64),
        (box.rocm("gfx942"), latent(), None, 16),
    ],
)
def test_cache_blocks_adapt_or_follow_the_user(
    machine: Machine, layers: object, user: int | None, block: int
) -> None:
    """Left alone the smallest that fits; a page of the user's splits into kernel blocks."""
    decision = decide(layers, machine, block_size=user)
    assert decision.pick is not None
    assert decision.pick.block_size == block


def test_an_impossible_block_size_is_refused_at_selection() -> None:
    """16 is no multiple of 32 or 64: FlashInfer's latent kernel is out, and says so."""
    decision = decide(latent(), box.cuda(10), block_size=16)
    found = reasons(decision, "FLASHINFER_MLA")["block_size"]
    assert (found.wanted, found.found) == ("a multiple of 32 or 64", "16")
    assert found.source == "--block-size"
    assert eligible(decision) == ["TRITON_MLA"]


def test_recurrent_layers_are_served_by_kind_and_not_by_head_size() -> None:
    """No figure of the attention layers beside them matters."""
    for op in ("gdn", "mamba1", "mamba2", "short_conv", "linear"):
        for machine in (A100, box.rocm("gfx1100"), box.xpu(), box.cpu()):
            decision = decide(BY_OP[op], machine)
            assert len(eligible(decision)) == 1
            assert decision.pick is not None
            assert decision.pick.is_ssm


def test_a_request_that_cannot_be_honoured_fails_loudly() -> None:
    """Head size 80 is none of FlashInfer's: no pick, the reason, and what would be picked."""
    layers = group(head_size=80, num_kv_heads=32)
    decision = decide(layers, A100, dtype="float16", backend=(("*", "FLASHINFER"),))
    assert decision.pick is None
    assert not decision.answered
    found = reasons(decision, "FLASHINFER")["head_size"]
    assert (found.wanted, found.found) == ("64, 128, 256 or 512", "80")
    assert decision.would_pick is not None
    assert decision.would_pick.name == "FLASH_ATTN"


def test_a_layer_that_no_backend_computes_says_so_everywhere() -> None:
    """RWKV keeps a state that nothing here keeps."""
    decision = decide(group("recurrent_other", head_size=None), A100)
    assert decision.pick is None
    for candidate in decision.candidates:
        operation = next(f for f in candidate.findings if f.code == "operation")
        assert operation.verdict is Verdict.UNMET
        assert operation.found == "a layer that no operation here computes"


def test_an_installed_package_that_cannot_run_here_is_not_enough() -> None:
    """Triton without a compiler is installed and not usable: the reason is the finding's."""

    machine = box.cuda(8)
    broken = msgspec.structs.replace(
        machine.packages["triton"], usable=False, reason="no C compiler for its launchers"
    )
    packages = {**machine.packages, "triton": broken}
    decision = decide(group(sinks=True), msgspec.structs.replace(machine, packages=packages))
    assert decision.pick is None
    found = reasons(decision, "TRITON_ATTN")["package_missing"]
    assert found.found == "triton, but no C compiler for its launchers"
