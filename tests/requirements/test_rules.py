"""Rules one by one, where a declaration's tests do not show the edge."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.findings import Verdict
from attnctl.machine import Package
from attnctl.model.spec import LayerGroup, State
from attnctl.requirements import (
    block_size,
    conv_width,
    device_dtype,
    features,
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
from tests.requirements.asking import BARE, answer, ask, layer, with_package


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


def test_a_chunk_is_whole_blocks_of_the_backend_s_own_too() -> None:
    """No user's size would divide 24, and the first batch of a plan on blocks of 16 would fail."""
    alone = ask(whole_chunks(), box.cuda(9), group("chunked", chunk=24))
    assert (alone.verdict, alone.fix) == (Verdict.UNMET, "")
    assert alone.found == "chunks of 24 tokens in blocks of 16"
    assert ask(whole_chunks(), box.cuda(9), group("chunked", chunk=8192)).met
    for rule, size in (
        (whole_chunks(32), 32),
        (whole_chunks(16, {"cuda": 64, "xpu": 32}), 64),
        (whole_chunks(16, {"cuda": 64}, lambda subject: 256), 256),
        (whole_chunks(16, {"xpu": 32}, lambda subject: None), 16),
    ):
        found = ask(rule, box.cuda(9), group("chunked", chunk=128)).found
        assert found == f"chunks of 128 tokens in blocks of {size}"
    fixed = ask(whole_chunks(), box.cuda(9), group("chunked", chunk=128), block_size=256)
    assert fixed.fix == "a --block-size that divides the chunk"
    assert answer(whole_chunks(), box.cuda(9), group()) is None
