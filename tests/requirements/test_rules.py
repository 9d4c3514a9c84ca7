"""Rules one by one, where a declaration's tests do not show the edge."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.findings import Finding, Verdict
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, Mla, ModelSpec, State
from attnctl.requirements import (
    Rule,
    Subject,
    block_size,
    conv_width,
    device_dtype,
    features,
    flash_kernel,
    flash_prefix_lm,
    flash_sinks,
    flash_version,
    flashinfer_kv_cache_dtype,
    flashinfer_sinks,
    flashmla_sparse_512,
    flashmla_sparse_block,
    gfx,
    head_sizes,
    isa,
    on,
    package,
    shared_memory,
    whole_chunks,
)
from attnctl.requirements.memory import smallest_tile_bytes
from attnctl.select import subject_of
from tests import machine_factory as box
from tests.layer_factory import group, latent


def layer(layers: LayerGroup, dtype: str = "bfloat16", **options: object) -> Layer:
    spec = ModelSpec(model_type="m", groups=(layers,), dtype=dtype)
    return layer_of(spec, layers, Options(**options))  # type: ignore[arg-type]


def ask(rule: Rule, machine: Machine, layers: LayerGroup | None = None, **more: object) -> Finding:
    """The finding, which the layer must raise."""
    found = answer(rule, machine, layers, **more)
    assert found is not None
    return found


def answer(
    rule: Rule, machine: Machine, layers: LayerGroup | None = None, **more: object
) -> Finding | None:
    return rule.check(subject(machine, layers, **more))


def subject(machine: Machine, layers: LayerGroup | None = None, **more: object) -> Subject:
    return subject_of(machine, layer(layers or group(), **more))  # type: ignore[arg-type]


def with_package(machine: Machine, name: str, found: Package) -> Machine:
    return msgspec.structs.replace(machine, packages={**machine.packages, name: found})


BARE = box.cuda(9, packages=("torch",))


@pytest.mark.parametrize(
    ("found", "verdict", "text"),
    [
        (Package(status="ok", source="metadata", version="2.8"), Verdict.MET, "flash_attn 2.8"),
        (Package(status="assumed", source="--assume-installed"), Verdict.MET, "flash_attn"),
        (Package(status="absent", source="sys.path"), Verdict.UNMET, "not installed"),
        (
            Package(status="ok", source="metadata", usable=False, reason="no file"),
            Verdict.UNMET,
            "flash_attn, but no file",
        ),
        (
            Package(status="timeout", source="sys.path", reason="2 s"),
            Verdict.UNKNOWN,
            "flash_attn: 2 s",
        ),
        (
            Package(status="unknown", source="sys.path", reason="denied"),
            Verdict.UNKNOWN,
            "flash_attn: denied",
        ),
    ],
)
def test_a_package_is_met_unmet_or_unknown(found: Package, verdict: Verdict, text: str) -> None:
    """Installed, absent, not usable, and not asked are four things."""
    finding = ask(package("flash_attn"), with_package(BARE, "flash_attn", found))
    assert finding.verdict is verdict
    assert finding.found == text


def test_one_of_several_packages_is_enough() -> None:
    """The one that runs counts, whichever is named first."""
    broken = Package(status="ok", source="metadata", usable=False, reason="other build")
    machine = with_package(box.cuda(9), "flash_mla", broken)
    assert ask(package("flash_mla", "vllm"), machine).found == "vllm 1.0"


def test_a_package_that_no_probe_looks_for_is_unknown() -> None:
    """A plug-in's own package is not absent because the machine file does not list it."""
    assert ask(package("fancy_kernels"), BARE).verdict is Verdict.UNKNOWN
    assert ask(package("flashinfer"), BARE).verdict is Verdict.UNMET
    listed = with_package(BARE, "fancy_kernels", Package(status="absent", source="sys.path"))
    assert ask(package("fancy_kernels"), listed).verdict is Verdict.UNMET


def test_a_machine_whose_packages_nobody_listed_is_unknown() -> None:
    """The fix says how to go on."""
    finding = ask(package("torch"), box.cuda(9, packages=()))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.fix == "--assume-installed all"


def test_a_feature_that_nobody_has_heard_of_is_unmet() -> None:
    """An unknown feature means no, in a declaration and in a layer."""
    with pytest.raises(ValueError, match="no such feature: telepathy"):
        features("sinks", "telepathy")
    strange = msgspec.structs.replace(layer(group()), features=("telepathy",))
    found = [f for rule in features() if (f := rule.check(subject_of(BARE, strange)))]
    assert [(f.code, f.verdict, f.wanted) for f in found] == [
        ("feature", Verdict.UNMET, "telepathy")
    ]


def test_a_rule_on_one_platform_asks_nothing_elsewhere() -> None:
    """FlashAttention's blocks are 16 on NVIDIA and 64 on Intel."""
    (rule,) = on("xpu", block_size(multiple_of=64))
    assert answer(rule, box.cuda(9), block_size=16) is None
    assert ask(rule, box.xpu(), block_size=16).verdict is Verdict.UNMET
    assert rule.about == "both"


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
    ("layers", "dtype", "need"),
    [
        (group(head_size=128), "bfloat16", 2 * 16 * 3 * 128),
        (group(head_size=112), "float16", 2 * 16 * 3 * 128),
        (group(head_size=128), "float32", 4 * 16 * 3 * 128),
        (group(head_size=192, head_size_v=128), "bfloat16", 2 * 16 * (2 * 256 + 128)),
        (latent(), "bfloat16", 2 * 16 * 2 * (512 + 64)),
    ],
)
def test_the_smallest_tile_in_bytes(layers: LayerGroup, dtype: str, need: int) -> None:
    """Queries, keys and values of 16 rows, widths padded; latent values are a view."""
    assert smallest_tile_bytes(layer(layers, dtype)) == need


def test_a_tile_that_does_not_fit_says_both_figures() -> None:
    """A head size of 512 in float32 on a T4."""
    finding = ask(shared_memory(), box.cuda(7, 5), group(head_size=512), dtype="float32")
    assert finding.verdict is Verdict.UNMET
    assert finding.wanted == "98304 bytes per block for the smallest tile"
    assert finding.found == "65536 bytes"
    assert finding.fix == "--dtype float16"


def test_instruction_sets_that_are_advertised_and_blocked_say_why() -> None:
    """AMX without the permission is not AMX."""
    machine = box.cpu("avx2")
    blocked = msgspec.structs.replace(machine.cpu, isa_unusable={"amx_tile": "no permission"})
    finding = ask(isa("amx_tile"), msgspec.structs.replace(machine, cpu=blocked))
    assert finding.found == "amx_tile: no permission"
    silent = msgspec.structs.replace(machine.cpu, isa=())
    assert ask(isa("avx2"), msgspec.structs.replace(machine, cpu=silent)).verdict is Verdict.UNKNOWN


def test_architectures_are_prefixes() -> None:
    """gfx94 takes gfx942, and nothing is known of a GPU without a name."""
    rule = gfx("gfx94", "gfx95")
    assert ask(rule, box.rocm("gfx942")).met
    assert ask(rule, box.rocm("gfx1100")).verdict is Verdict.UNMET
    machine = box.rocm("gfx942")
    gpu = msgspec.structs.replace(machine.gpus[0], arch=None)
    nameless = msgspec.structs.replace(
        machine, amd=msgspec.structs.replace(machine.amd, gpus=(gpu,))
    )
    assert ask(rule, nameless).verdict is Verdict.UNKNOWN
    assert answer(rule, box.cuda(9)) is None


def test_wide_convolutions_and_unequal_widths_are_judged_by_their_own_figures() -> None:
    """A state's taps; both widths of keys and values."""
    wide = group("mamba2", head_size=None, state=State(type="mamba2", conv_kernel=8))
    assert ask(conv_width(at_most=4), BARE, wide).found == "8"
    finding = ask(head_sizes(at_least=32), BARE, group(head_size=64, head_size_v=16))
    assert (finding.verdict, finding.found) == (Verdict.UNMET, "64 and 16")


def test_half_precision_on_old_devices_raises_no_question() -> None:
    """Only bfloat16 below 8.0 does."""
    assert answer(device_dtype(), box.cuda(7, 5), dtype="float16") is None
    assert answer(device_dtype(), box.cuda(8), dtype="bfloat16") is None


@pytest.mark.parametrize(
    ("chunk", "block", "verdict"),
    [(8192, 16, Verdict.MET), (24, 16, Verdict.UNMET), (24, 24, Verdict.MET)],
)
def test_a_chunk_that_becomes_a_sequence_is_whole_blocks(
    chunk: int, block: int, verdict: Verdict
) -> None:
    """A kernel's block table begins with a block; 24 tokens begin one and a half blocks of 16."""
    found = ask(whole_chunks(), box.cuda(9), group("chunked", chunk=chunk), block_size=block)
    assert found.verdict is verdict
    assert found.found == f"chunks of {chunk} tokens in blocks of {block}"


def test_a_chunk_is_not_asked_about_until_a_block_size_is_fixed() -> None:
    """The engine picks a block size that divides it."""
    assert answer(whole_chunks(), box.cuda(9), group("chunked", chunk=24)) is None


@pytest.mark.parametrize(
    ("packages", "verdict"),
    [(("flash_attn_3",), Verdict.UNMET), (("flash_attn_3", "vllm"), Verdict.MET)],
)
def test_sinks_are_in_the_fa3_that_vllm_builds(packages: tuple[str, ...], verdict: Verdict) -> None:
    """The function of FA3's own package has no argument for them."""
    assert ask(flash_sinks(), box.cuda(9, packages=packages), group(sinks=True)).verdict is verdict
