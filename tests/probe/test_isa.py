"""Usable instructions follow from flags and the kernel's word, never from a model name."""

import pytest

from attnctl.probe import isa, microarchitecture
from attnctl.probe.isa import Amx

SPR = ["avx2", "avx512f", "avx512bw", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"]


def test_tiles_are_usable_with_permission_and_a_palette():
    """A granted request and one palette make every advertised AMX part usable."""
    found = isa.x86(SPR, Amx("ok", 1))
    assert found.unusable == {}
    assert [name for name in found.usable if name.startswith("amx")] == [
        "amx_tile",
        "amx_int8",
        "amx_bf16",
    ]


@pytest.mark.parametrize(
    ("amx", "part"),
    [
        (Amx("EPERM", 1), "refuses the tile permission (arch_prctl: EPERM)"),
        (Amx("ok", 0), "no tile palette"),
        (Amx("ok", None, "Permission denied"), "could not be read from CPUID: Permission denied"),
        (Amx(reason="timeout"), "timeout"),
        (None, "was not asked for"),
    ],
)
def test_tiles_without_permission_or_palette_are_named_unusable(amx, part):
    """AMX is taken away with its reason, and AVX-512 stays."""
    found = isa.x86(SPR, amx)
    assert set(found.unusable) == {"amx_tile", "amx_bf16", "amx_int8"}
    assert all(part in reason for reason in found.unusable.values())
    assert "avx512_bf16" in found.usable


def test_a_feature_without_what_it_builds_on_is_unusable():
    """A hypervisor that masks avx512f and leaves its parts does not offer AVX-512."""
    found = isa.x86(["avx2", "avx512_bf16", "amx_bf16"], Amx("ok", 1))
    assert found.usable == ("avx2",)
    assert set(found.unusable) == {"avx512_bf16", "amx_bf16"}


@pytest.mark.parametrize(
    ("extra", "level"),
    [
        ("", "x86-64-v1"),
        ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3", "x86-64-v2"),
        # levels are a chain: v3's features without v2's are still v1
        ("avx avx2 bmi1 bmi2 f16c fma abm movbe xsave", "x86-64-v1"),
    ],
)
def test_an_x86_level_needs_all_levels_below(extra, level):
    """The psABI levels are cumulative."""
    assert isa.x86_level(f"cmov cx8 fpu fxsr mmx syscall sse sse2 {extra}".split()) == level


GRAVITON3 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma "
    "lrcpc dcpop sha3 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs dcpodp svei8mm "
    "svebf16 i8mm bf16 dgh rng"
)


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ("fp asimd aes crc32", "armv8a"),
        ("asimd crc32 atomics asimdrdm fphp asimdhp dcpop asimddp", "armv8.2a"),
        # bf16 and i8mm alone do not make Armv8.6: sb and flagm2 of Armv8.5 are missing
        (GRAVITON3, "armv8.4a"),
        (f"{GRAVITON3} sb flagm2 frint sve2", "armv9.0a"),
        ("", None),
    ],
)
def test_an_arm_level_is_the_highest_whose_mandatory_features_are_there(features, level):
    """Levels follow from features as Linux names them."""
    assert isa.arm_level(features.split()) == level


def test_hwcap_words_say_the_same_as_features():
    """A kernel that hides Features from /proc/cpuinfo still tells each process by AT_HWCAP."""
    hwcap = 1 << 1 | 1 << 20 | 1 << 22
    assert isa.arm_features_of_hwcap(hwcap, 1 << 1 | 1 << 14) == {
        "asimd",
        "asimddp",
        "sve",
        "sve2",
        "bf16",
    }


@pytest.mark.parametrize(
    ("text", "level", "usable"),
    [
        ("rv64imafdcv_zicsr_zfh_zvfh", "rv64gcv", ("v", "zfh", "zvfh")),
        ("rv64gc", "rv64gc", ()),
        ("rv64gcv", "rv64gcv", ("v",)),
        ("rv64imafdczba_zbb", "rv64gc", ("zba", "zbb")),
        ("rv64imac", None, ()),
        ("", None, ()),
    ],
)
def test_a_riscv_isa_string_is_taken_apart(text, level, usable):
    """Single letters, g, and names with and without underscores."""
    extensions = isa.riscv_extensions(text)
    assert isa.riscv_level(extensions) == level
    assert isa.riscv(extensions).usable == usable


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        ("AuthenticAMD", 23, 1, 2, "zen"),
        ("AuthenticAMD", 23, 49, 0, "zen2"),
        ("AuthenticAMD", 25, 1, 1, "zen3"),
        ("AuthenticAMD", 25, 17, 1, "zen4"),
        ("AuthenticAMD", 26, 2, 1, "zen5"),
        ("AuthenticAMD", 26, 17, 0, "zen5"),
        ("GenuineIntel", 6, 85, 4, "skylake_avx512"),
        ("GenuineIntel", 6, 85, 7, "cascadelake"),
        ("GenuineIntel", 6, 85, 11, "cooperlake"),
        ("GenuineIntel", 6, 106, 6, "icelake"),
        ("GenuineIntel", 6, 143, 8, "sapphirerapids"),
        ("GenuineIntel", 6, 173, 1, "graniterapids"),
        ("GenuineIntel", 6, 9999, 1, None),
        ("CentaurHauls", 7, 59, 0, None),
    ],
)
def test_family_model_and_stepping_name_the_design(vendor, family, model, stepping, name):
    """The tables follow the kernel's; what they do not have stays unnamed."""
    record = {
        "vendor_id": vendor,
        "cpu family": str(family),
        "model": str(model),
        "stepping": str(stepping),
    }
    assert microarchitecture.x86(record) == name


@pytest.mark.parametrize(
    ("implementer", "part", "name", "vendor"),
    [
        ("0x41", "0xd4f", "neoverse_v2", "ARM"),
        ("0x41", "0xd40", "neoverse_v1", "ARM"),
        ("0x41", "0xd0c", "neoverse_n1", "ARM"),
        ("0x61", "0x022", "m1", "Apple"),
        ("0xc0", "0xac3", "ampere1", "Ampere"),
        ("0x99", "0x001", None, None),
        ("zz", "", None, None),
    ],
)
def test_implementer_and_part_name_the_design(implementer, part, name, vendor):
    """Arm designs are numbered per implementer."""
    record = {"cpu implementer": implementer, "cpu part": part}
    assert microarchitecture.arm(record) == name
    assert microarchitecture.arm_vendor(record) == vendor
