"""Rules of what a library has: versions of FlashAttention, FlashInfer and FlashMLA."""

from __future__ import annotations

import pytest

from attnctl.findings import Verdict
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, Mla
from attnctl.requirements import (
    flash_kernel,
    flash_prefix_lm,
    flash_sinks,
    flash_version,
    flashinfer_kv_cache_dtype,
    flashinfer_sinks,
    flashmla_sparse_512,
    flashmla_sparse_block,
)
from tests import machine_factory as box
from tests.layer_factory import group, latent
from tests.requirements.asking import BARE, answer, ask, subject, with_package


@pytest.mark.parametrize(
    ("cc", "layers", "packages", "version"),
    [
        ((8, 0), group(), None, 2),
        ((9, 0), group(), None, 3),
        ((9, 0), group(), ("torch", "flash_attn"), 2),
        ((9, 0), group(), ("torch", "flash_attn_4"), 4),
        ((9, 0), group(alibi=True), None, 2),
        ((9, 0), group(head_size=512), None, 4),
        ((9, 0), group(head_size=512), ("torch", "flash_attn", "flash_attn_3"), None),
        ((9, 0), group(head_size=192, head_size_v=128), None, 3),
        ((9, 0), group(head_size=192, head_size_v=128, sinks=True), None, 4),
        ((9, 0), group(head_size=192, head_size_v=128), ("torch", "flash_attn"), None),
        # FA3's own check of unequal widths, met on an H200
        ((9, 0), group(head_size=64, head_size_v=256), None, 3),
        ((9, 0), group(head_size=40, head_size_v=72), None, 3),
        ((9, 0), group(head_size=80, head_size_v=48), None, 4),
        ((9, 0), group(head_size=192, head_size_v=96), None, 4),
        ((9, 0), group(head_size=80, head_size_v=48), ("torch", "flash_attn_3"), None),
        ((8, 0), group(head_size=192, head_size_v=128), None, None),
        ((10, 0), group(), None, 4),
        ((10, 0), group(head_size=256), None, 2),
        ((10, 0), group(head_size=192, head_size_v=128), None, 4),
        ((11, 0), group(), None, 2),
        ((11, 0), group(sinks=True), None, 2),
        ((11, 0), group(sinks=True), ("torch", "flash_attn_4"), 4),
        ((11, 0), group(head_size=192, head_size_v=128), None, 4),
        ((12, 0), group(), None, 2),
        ((7, 5), group(), None, None),
    ],
)
def test_which_flash_attention_serves(
    cc: tuple[int, int], layers: LayerGroup, packages: tuple[str, ...] | None, version: int | None
) -> None:
    """By device, layer and what is installed."""
    assert flash_version(subject(box.cuda(*cc, packages=packages), layers)) == version


@pytest.mark.parametrize(("built", "version"), [("2", 4), ("2,3", 3), (None, 3)])
def test_vllm_s_wheel_carries_what_its_files_say(built: str | None, version: int) -> None:
    """FA4 is source and always there; without a list every version counts as there."""
    build = {} if built is None else {"flash_attn": built}
    wheel = Package(status="ok", source="metadata", build=build)
    assert flash_version(subject(with_package(BARE, "vllm", wheel))) == version


def test_a_missing_flash_attention_names_the_one_to_install() -> None:
    """The preferred version of this device comes first."""
    finding = ask(flash_kernel(), box.cuda(10, packages=("torch",)))
    assert finding.found == "FA4 or FA2 not installed"
    assert finding.fix == "pip install flash-attn-4"


@pytest.mark.parametrize(
    ("machine", "layers", "options", "good"),
    [
        (box.cuda(9), group(prefix_lm=True), {}, False),  # FA3
        (box.cuda(9), group(prefix_lm=True, head_size=512), {}, True),
        (
            box.cuda(9),
            group(prefix_lm=True, head_size=512),
            {"kv_cache_dtype": "fp8"},
            False,
        ),
        (box.cuda(10), group(prefix_lm=True), {}, True),
        (box.cuda(10), group(prefix_lm=True, head_size=256), {}, False),  # FA2
        (box.cuda(8), group(prefix_lm=True), {}, False),
    ],
)
def test_bidirectional_prefixes_need_flash_attention_4(
    machine: Machine, layers: LayerGroup, options: dict[str, str], good: bool
) -> None:
    """And on 9.0 no FP8 cache."""
    assert ask(flash_prefix_lm(), machine, layers, **options).met is good


@pytest.mark.parametrize(
    ("cc", "packages", "good"),
    [
        ((9, 0), None, True),
        ((10, 0), None, True),
        ((12, 1), None, True),
        ((11, 0), None, False),
        ((8, 9), None, False),
        ((9, 0), ("torch", "flashinfer"), False),
    ],
)
def test_flashinfer_s_sinks_need_cubins_and_a_device_that_has_them(
    cc: tuple[int, int], packages: tuple[str, ...] | None, good: bool
) -> None:
    """The wheel alone has no precompiled kernels."""
    machine = box.cuda(*cc, packages=packages)
    assert ask(flashinfer_sinks(), machine, group(head_size=64, sinks=True)).met is good


@pytest.mark.parametrize(
    ("cc", "size", "packages", "good"),
    [
        ((9, 0), 128, ("torch", "flashinfer"), True),
        ((9, 0), 64, None, False),
        ((10, 0), 64, None, True),
        ((10, 0), 128, ("torch", "flashinfer"), False),
        ((11, 0), 128, None, False),
    ],
)
def test_flashinfer_s_nvfp4_caches(
    cc: tuple[int, int], size: int, packages: tuple[str, ...] | None, good: bool
) -> None:
    """On 10.x by cubins; elsewhere not at head size 64."""
    machine, layers = box.cuda(*cc, packages=packages), group(head_size=size)
    rule = flashinfer_kv_cache_dtype()
    assert ask(rule, machine, layers, kv_cache_dtype="nvfp4").met is good


ROPE_FREE = Mla(
    kv_lora_rank=512,
    qk_rope_head_dim=0,
    qk_nope_head_dim=256,
    v_head_dim=256,
    prefill_head_size=256,
    prefill_head_size_v=256,
)


@pytest.mark.parametrize(
    ("cc", "kv_dtype", "good"),
    [
        ((9, 0), "auto", True),
        ((9, 0), "fp8_ds_mla", True),
        ((9, 0), "fp8", False),
        ((10, 0), "auto", False),
    ],
)
def test_sparse_rows_of_512_are_hopper_s(cc: tuple[int, int], kv_dtype: str, good: bool) -> None:
    """Rows of 576 raise no question."""
    layers = latent(topk=2048, mla=ROPE_FREE)
    rule = flashmla_sparse_512()
    assert ask(rule, box.cuda(*cc), layers, kv_cache_dtype=kv_dtype).met is good
    assert answer(rule, box.cuda(*cc), latent(topk=2048), kv_cache_dtype=kv_dtype) is None


def test_quantised_sparse_blocks_on_blackwell_are_64() -> None:
    """128 splits on Hopper and not there."""
    rule, layers = flashmla_sparse_block(), latent(topk=2048)
    kept = {"kv_cache_dtype": "fp8", "block_size": 128}
    assert ask(rule, box.cuda(10), layers, **kept).fix == "--block-size 64"
    assert answer(rule, box.cuda(9), layers, **kept) is None
    assert ask(rule, box.cuda(10), layers, kv_cache_dtype="fp8", block_size=64).met


@pytest.mark.parametrize(
    ("packages", "verdict"),
    [(("flash_attn_3",), Verdict.UNMET), (("flash_attn_3", "vllm"), Verdict.MET)],
)
def test_sinks_are_in_the_fa3_that_vllm_builds(packages: tuple[str, ...], verdict: Verdict) -> None:
    """The function of FA3's own package has no argument for them."""
    assert ask(flash_sinks(), box.cuda(9, packages=packages), group(sinks=True)).verdict is verdict
