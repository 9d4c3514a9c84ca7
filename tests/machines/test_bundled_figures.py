"""Figures of the bundled machines that follow from each other or from a vendor's table."""

from __future__ import annotations

import pytest

from attnctl.machine import Gpu, Machine
from attnctl.machines import load, names

CUDA, ROCM, XPU, CPU = (
    [name for name in names() if load(name).platform == platform]
    for platform in ("cuda", "rocm", "xpu", "cpu")
)

# CUDA programming guide, table "Memory Information per Compute Capability", 12.x of the guide for
# 7.0; LDS of AMD's GPU specifications; SLM of a work-group of Intel's GPU optimization guide
SHARED_MEMORY_BYTES = {
    "sm_70": 96 << 10,
    "sm_75": 64 << 10,
    "sm_80": 163 << 10,
    "sm_86": 99 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "sm_103": 227 << 10,
    "sm_110": 227 << 10,
    "sm_120": 99 << 10,
    "sm_121": 99 << 10,
    "gfx90a": 64 << 10,
    "gfx942": 64 << 10,
    "gfx950": 160 << 10,
    "gfx1100": 64 << 10,
    "gfx1151": 64 << 10,
    "gfx1201": 64 << 10,
    "xe-hpc": 128 << 10,
    "xe-hpg": 64 << 10,
    "xe2-hpg": 128 << 10,
}
# what kernels ask for, in the order in which the probe lists it
X86_FLAGS = """
    sse4_2 avx f16c fma avx2 avx_vnni avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma
    avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16
    amx_tile amx_int8 amx_bf16
"""
# flags of a guest on an EPYC 7003 as /proc/cpuinfo prints them
EPYC_7003_GUEST = """
    fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse
    sse2 ht syscall nx mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good nopl xtopology
    pni pclmulqdq ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c
    rdrand hypervisor lahf_lm cmp_legacy cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw
    topoext vmmcall fsgsbase bmi1 avx2 smep bmi2 erms invpcid rdseed adx smap clflushopt clwb
    sha_ni xsaveopt xsavec xgetbv1 xsaves clzero xsaveerptr arat umip vaes vpclmulqdq rdpid fsrm
"""


def gpus_of(machine: Machine) -> tuple[Gpu, ...]:
    return machine.nvidia.gpus + machine.amd.gpus + machine.intel.gpus


@pytest.mark.parametrize("name", CUDA + ROCM + XPU)
def test_the_figures_of_a_gpu_agree_with_its_architecture(name):
    """Shared memory is the architecture's; counts, memory and bandwidth are known and plausible."""
    gpus = gpus_of(load(name))
    assert gpus
    for index, gpu in enumerate(gpus):
        assert gpu.index == index
        assert gpu.arch is not None
        assert gpu.shared_memory_bytes == SHARED_MEMORY_BYTES[gpu.arch]
        assert gpu.unit_count is not None
        assert 16 <= gpu.unit_count <= 320
        assert gpu.memory.kind in ("discrete", "unified")
        assert gpu.memory.total_bytes is not None
        assert 10 << 30 < gpu.memory.total_bytes <= 288 << 30
        assert gpu.bandwidth_gbps is not None
        assert 200 < gpu.bandwidth_gbps <= 8000
        assert gpu.fp16 is True


@pytest.mark.parametrize("name", CUDA)
def test_an_nvidia_architecture_is_its_compute_capability(name):
    """sm_103 is compute capability 10.3; warps have 32 lanes; the PCI vendor is NVIDIA."""
    (gpu,) = load(name).nvidia.gpus
    assert gpu.capability is not None
    assert gpu.arch == "sm_{}{}".format(*gpu.capability)
    assert gpu.warp_size == 32
    assert gpu.pci_id is not None
    assert gpu.pci_id.startswith("10de:")


@pytest.mark.parametrize("name", ROCM)
def test_an_amd_wave_is_64_lanes_on_cdna_and_32_on_rdna(name):
    """gfx9 waves have 64 lanes, gfx10 and later 32; the arch has no feature suffix."""
    gpus = load(name).amd.gpus
    assert gpus
    for gpu in gpus:
        assert gpu.arch is not None
        assert gpu.warp_size == (64 if gpu.arch.startswith("gfx9") else 32)
        assert gpu.capability is None
        assert gpu.arch.isalnum()
        assert gpu.pci_id is not None
        assert gpu.pci_id.startswith("1002:")


@pytest.mark.parametrize("name", XPU)
def test_an_intel_gpu_counts_vector_engines_beside_xe_cores(name):
    """16 vector engines a core on Arc A, 8 on the others; the PCI vendor is Intel."""
    gpus = load(name).intel.gpus
    assert gpus
    for gpu in gpus:
        assert gpu.unit_count is not None
        assert gpu.eu_count == gpu.unit_count * (16 if gpu.arch == "xe-hpg" else 8)
        assert "xmx" in gpu.features
        assert gpu.pci_id is not None
        assert gpu.pci_id.startswith("8086:")


def test_one_card_with_two_dies_is_two_gpus():
    """MI250X and Max 1550 show as two GPUs of half a card; every other machine has one."""
    counts = {name: len(gpus_of(load(name))) for name in names()}
    assert {name for name, count in counts.items() if count == 2} == {"mi250x", "max1550"}
    assert max(counts.values()) == 2


def test_no_two_machines_share_a_pci_device():
    """The PCI id tells the bundled GPUs apart, as profiles need it to."""
    ids = [{gpu.pci_id for gpu in gpus_of(load(name))} for name in names()]
    single = [pci_id for found in ids for pci_id in found]
    assert len(single) == len(set(single)) == len(names()) - len(CPU)


def test_the_h200_is_what_nvml_says_of_one():
    """Figures that a driver reported: 143771 MiB, 132 multiprocessors, 10de:2335."""
    (gpu,) = load("h200").nvidia.gpus
    assert gpu.memory.total_bytes == 143_771 << 20
    assert (gpu.name, gpu.unit_count, gpu.pci_id) == ("NVIDIA H200", 132, "10de:2335")


@pytest.mark.parametrize("name", CPU)
def test_a_processor_is_described_as_far_as_selection_asks(name):
    """Design, level, features, one SKU's cores and caches are known."""
    cpu = load(name).cpu
    assert cpu.arch in ("x86_64", "aarch64")
    assert cpu.vendor in ("AMD", "Intel", "ARM")
    assert None not in (cpu.model, cpu.microarchitecture, cpu.isa_level, cpu.bandwidth_gbps)
    assert cpu.cores is not None
    assert cpu.threads in (cpu.cores, 2 * cpu.cores)
    assert [(cache.level, cache.type) for cache in cpu.caches] == [
        (1, "data"),
        (1, "instruction"),
        (2, "unified"),
        (3, "unified"),
    ]
    assert all(cpu.threads % cache.shared_by == 0 for cache in cpu.caches)


def test_zen3_has_the_features_that_a_zen3_guest_advertises():
    """The bundled list equals what the kernel prints on an EPYC 7003, cut to what kernels use."""
    found = tuple(flag for flag in X86_FLAGS.split() if flag in EPYC_7003_GUEST.split())
    assert load("zen3").cpu.isa == found == ("sse4_2", "avx", "f16c", "fma", "avx2")


def test_x86_features_build_on_each_other():
    """Each design of a line has what the one before it had, and its level follows from AVX-512."""
    zen3, zen4, zen5 = (frozenset(load(name).cpu.isa) for name in ("zen3", "zen4", "zen5"))
    icelake, sapphire = (frozenset(load(n).cpu.isa) for n in ("icelake", "sapphire-rapids"))
    assert zen3 < zen4 < zen5 < sapphire
    assert icelake < zen4
    assert sapphire - zen5 == {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
    assert sapphire == frozenset(X86_FLAGS.split())
    for name in ("zen3", "zen4", "zen5", "icelake", "sapphire-rapids"):
        cpu = load(name).cpu
        assert cpu.isa_level == ("x86-64-v4" if "avx512f" in cpu.isa else "x86-64-v3")


def test_sve_has_256_bits_on_neoverse_v1_and_128_on_v2():
    """SVE2 came with Armv9: Graviton3 has SVE alone."""
    widths = {
        name: load(name).cpu.sve_bits for name in ("graviton3", "graviton4", "grace", "gh200")
    }
    assert widths == {"graviton3": 256, "graviton4": 128, "grace": 128, "gh200": 128}
    assert "sve2" not in load("graviton3").cpu.isa
    assert "sve2" in load("graviton4").cpu.isa
    assert load("graviton3").cpu.isa_level == "armv8.4a"
    assert load("grace").cpu.isa_level == "armv9.0a"
