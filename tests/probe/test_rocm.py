"""AMD machines, invented: what the probe says of each, where from, and what it advises."""

import pytest

from attnctl.machine import Memory
from attnctl.probe import kfd
from attnctl.probe.arch import gfx_name
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.rocm import probe_amd
from tests.probe.amd_machines import NO_AMDSMI, hip_only
from tests.probe.gpu_tapes import children_asked, machine, probed, value


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90500, "gfx950"),
        (110501, "gfx1151"),
        (100300, "gfx1030"),
        (120001, "gfx1201"),
        (0, None),
        (90099, None),
    ],
)
def test_the_stepping_of_a_target_is_in_hex(version, name):
    """90010 is gfx90a; a processor has 0."""
    assert gfx_name(version) == name


def test_eight_mi300x_are_whole_and_nothing_is_wrong():
    """KFD, amdsmi and HIP agree; each field has its best source."""
    vendor, facts, findings = probed(probe_amd, machine("mi300x-x8"))
    assert findings == {}
    assert (vendor.status, vendor.driver, vendor.runtime) == ("ok", "6.12.12", "6.4.1")
    assert len(vendor.gpus) == 8
    gpu = vendor.gpus[2]
    assert (gpu.name, gpu.arch) == ("AMD Instinct MI300X OAM", "gfx942")
    assert gpu.features == ("sramecc+", "xnack-")
    assert (gpu.pci_id, gpu.pci_bus_id) == ("1002:74a1", "0000:46:00.0")
    assert gpu.uuid == f"GPU-{103:016x}"
    assert (gpu.unit_count, gpu.warp_size, gpu.shared_memory_bytes) == (304, 64, 65_536)
    assert gpu.memory == Memory(
        kind="discrete", total_bytes=206_141_652_992, free_bytes=206_141_652_992 - 297_508_864
    )
    assert gpu.bandwidth_gbps == 5300.0
    assert facts["amd.gpus.2.bandwidth_gbps"].source == "amdsmi"
    assert facts["amd.gpus.2.features"].source == "HIP"
    assert [g.logical_index for g in vendor.gpus] == list(range(8))


def test_the_bandwidth_of_hbm_follows_from_clock_and_width():
    """Without amdsmi: MI300X 1300 MHz x 4 x 8192 bit; MI250X 1600 x 2 x 4096 a die."""
    host = machine("mi300x-x8", answers={("child", "ask_amdsmi"): NO_AMDSMI})
    assert probed(probe_amd, host)[0].gpus[0].bandwidth_gbps == pytest.approx(5324.8)
    assert probed(probe_amd, machine("mi250x"))[0].gpus[0].bandwidth_gbps == pytest.approx(1638.4)


def test_an_mi250x_is_two_gpus():
    """Each die is a GPU of its own; the kernel's own driver has the kernel's version."""
    vendor, facts, findings = probed(probe_amd, machine("mi250x"))
    assert [(g.arch, g.unit_count, g.pci_bus_id) for g in vendor.gpus] == [
        ("gfx90a", 110, "0000:c1:00.0"),
        ("gfx90a", 110, "0000:c6:00.0"),
    ]
    assert vendor.driver == "kernel 6.8.0-60-generic"
    assert (vendor.runtime, vendor.gpus[0].name) == ("6.2.4", "AMD Instinct MI250X")
    assert findings == {}, "amdsmi is not needed where sysfs tells everything"
    assert "amdsmi is not installed" in facts["amd.gpus.0.name"].reason


def test_multiprocessors_of_rdna_are_pairs_of_compute_units():
    """HIP says 32 for the 64 compute units of a gfx1201, and 32 for 32 on CDNA."""
    vendor, facts, _ = probed(probe_amd, hip_only("gfx1201"))
    assert vendor.gpus[0].unit_count == 64
    assert "doubled" in facts["amd.gpus.0.unit_count"].reason
    vendor, _, _ = probed(probe_amd, hip_only("gfx942:sramecc+:xnack-"))
    assert vendor.gpus[0].unit_count == 32


def test_strix_halo_has_the_memory_of_the_machine_and_what_firmware_set_aside():
    """MemTotal does not count the part that firmware gave to the graphics."""
    vendor, facts, findings = probed(probe_amd, machine("strix-halo"))
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.unit_count) == ("gfx1151", 40)
    assert gpu.memory == Memory(
        kind="unified",
        total_bytes=94_000_000 * 1024 + 34_359_738_368,
        free_bytes=90_000_000 * 1024 + 34_359_738_368 - 159_383_552,
    )
    assert "/proc/meminfo + " in facts["amd.gpus.0.memory.total_bytes"].source
    assert gpu.visible
    assert findings == {}


def test_masks_number_what_is_left():
    """ROCR filters, HIP numbers the rest; hidden cards stay listed."""
    masks = {
        ("env", "ROCR_VISIBLE_DEVICES"): "4,5,6",
        ("env", "HIP_VISIBLE_DEVICES"): "2,0",
    }
    vendor, facts, _ = probed(probe_amd, machine("mi300x-x8", answers=masks))
    assert {g.index: g.logical_index for g in vendor.gpus if g.visible} == {6: 0, 4: 1}
    assert facts["amd.gpus.5.visible"].reason == "masked"


def test_a_mask_may_name_a_uuid():
    """The UUID is KFD's unique_id in hex."""
    mask = {("env", "ROCR_VISIBLE_DEVICES"): f"GPU-{105:016x}"}
    vendor, _, _ = probed(probe_amd, machine("mi300x-x8", answers=mask))
    assert [gpu.index for gpu in vendor.gpus if gpu.visible] == [4]


def test_a_machine_of_two_vendors_has_both():
    """Each vendor is described from its own sources, and neither hides the other."""
    host = machine("nvidia-a10-and-amd-mi210")
    nvidia, _, nvidia_findings = probed(probe_nvidia, host)
    amd, _, amd_findings = probed(probe_amd, host)
    assert [(g.arch, g.visible) for g in nvidia.gpus] == [("sm_86", True)]
    assert [(g.arch, g.visible) for g in amd.gpus] == [("gfx90a", True)]
    assert (nvidia_findings, amd_findings) == ({}, {})


def test_partitions_of_one_card_are_told_apart_by_their_order():
    """In CPX mode several nodes and several HIP devices have one bus id."""
    host = machine("mi300x-x8")
    nodes = kfd.NODES
    text = host.ask("read", f"{nodes}/2/properties")
    count = text.replace("simd_count 1216", "simd_count 152")
    second = count.replace("unique_id 101", "unique_id 555").replace(
        f"location_id {0x0500}", f"location_id {0x10000500}"
    )
    hip = host.ask("child", "ask_hip")["gpus"][0]
    answers = {
        ("list", nodes): ["0", "1", "2", "3"],
        ("read", f"{nodes}/2/properties"): count,
        ("read", f"{nodes}/3/properties"): second,
        ("child", "ask_hip"): {
            "version": value(60443484),
            "gpus": [hip, hip | {"uuid": value("GPU-000000000000022b")}],
        },
        ("child", "ask_amdsmi"): NO_AMDSMI,
    }
    vendor, _, findings = probed(probe_amd, machine("mi300x-x8", answers=answers))
    assert [(g.unit_count, g.pci_bus_id, g.visible) for g in vendor.gpus] == [
        (38, "0000:05:00.0", True),
        (38, "0000:05:00.0", True),
    ]
    assert vendor.gpus[1].uuid == "GPU-000000000000022b"
    assert findings == {}


def test_a_machine_without_amd_starts_no_child():
    """Absent, with the reason and no finding."""
    vendor, facts, findings = probed(probe_amd, machine("h100x8"))
    assert (vendor.status, findings) == ("absent", {})
    assert facts["amd.gpus"].status == "absent"
    assert children_asked(probe_amd, machine("h100x8")) == []
