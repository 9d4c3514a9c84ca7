"""AMD machines, invented: what the probe says of each, where from, and what it advises."""

import pytest

from attnctl.machine import Cpu, Machine, Memory, platform_of
from attnctl.probe import kfd
from attnctl.probe.arch import gfx_name
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.host import HostError
from attnctl.probe.rocm import probe_amd
from attnctl.probe.tape import Replay
from tests.probe.gpu_tapes import children_asked, machine, probed, refused, value

NO_AMDSMI = HostError("absent", "amdsmi is not installed: No module named 'amdsmi'")
AMDSMI_ERROR = {"error": {"name": "AmdSmiLibraryException", "text": "AMDSMI_STATUS_INIT_ERROR"}}


def hip_only(gfx, **answers):
    """A container with the compute node and a HIP that works, and nothing of sysfs."""
    gpu = {
        "name": value("AMD Radeon Graphics"),
        "gfx": value(gfx),
        "bus_id": value("0000:03:00.0"),
        "memory_bytes": value(34_208_743_424),
        "shared_memory_bytes": value(65_536),
        "warp_size": value(32 if gfx.startswith("gfx1") else 64),
        "multiprocessors": value(32),
        "integrated": value(0),
    }
    named = {
        ("access", "/dev/kfd"): "rw",
        ("child", "ask_amdsmi"): answers.get("amdsmi", AMDSMI_ERROR),
        ("child", "ask_hip"): {"version": value(70051831), "gpus": [gpu]},
    }
    return Replay.of(named)


def as_machine(vendor):
    return Machine(name="test", amd=vendor, cpu=Cpu())


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


def test_a_broken_amdsmi_is_a_finding_and_the_card_works():
    """PyTorch brings its own HIP, so none on the system is no finding; a desktop processor's
    graphics beside the card do not count."""
    vendor, facts, findings = probed(probe_amd, machine("rx7900xtx-amdsmi-broken"))
    assert list(findings) == ["amd.amdsmi_unusable"]
    assert findings["amd.amdsmi_unusable"].found.startswith("amdsmi unusable, used KFD topology")
    card, graphics = vendor.gpus
    assert (card.arch, card.unit_count, card.warp_size, card.visible) == ("gfx1100", 96, 32, True)
    assert card.memory.total_bytes == 25_753_026_560
    assert card.bandwidth_gbps is None
    assert "HBM alone" in facts["amd.gpus.0.bandwidth_gbps"].reason
    assert (graphics.arch, graphics.visible) == ("gfx1036", False)
    assert "ROCm does not support" in facts["amd.gpus.1.visible"].reason


@pytest.mark.parametrize(
    ("gfx", "amdsmi", "code", "text"),
    [
        ("gfx1201", AMDSMI_ERROR, "amd.amdsmi_unusable", "amdsmi unusable, used HIP"),
        ("gfx942:sramecc+:xnack-", NO_AMDSMI, "amd.amdsmi_missing", "amdsmi missing, used HIP"),
    ],
)
def test_hip_is_enough_where_sysfs_and_amdsmi_say_nothing(gfx, amdsmi, code, text):
    """Containers without the driver's part of sysfs: the platform is ROCm, and one finding."""
    vendor, _, findings = probed(probe_amd, hip_only(gfx, amdsmi=amdsmi))
    (gpu,) = vendor.gpus
    assert gpu.arch == gfx.partition(":")[0]
    assert platform_of(as_machine(vendor)) == "rocm"
    assert list(findings) == [code]
    assert findings[code].found.startswith(text)


def test_multiprocessors_of_rdna_are_pairs_of_compute_units():
    """HIP says 32 for the 64 compute units of a gfx1201, and 32 for 32 on CDNA."""
    vendor, facts, _ = probed(probe_amd, hip_only("gfx1201"))
    assert vendor.gpus[0].unit_count == 64
    assert "doubled" in facts["amd.gpus.0.unit_count"].reason
    vendor, _, _ = probed(probe_amd, hip_only("gfx942:sramecc+:xnack-"))
    assert vendor.gpus[0].unit_count == 32


def test_a_render_node_without_access_is_the_one_finding():
    """HIP counts none, /dev/kfd is open: the group or the device mapping is named, not amdsmi."""
    host = Replay.of(
        {
            ("access", "/dev/kfd"): "rw",
            ("access", "/dev/dri/renderD128"): "",
            ("child", "ask_amdsmi"): AMDSMI_ERROR,
            ("child", "ask_hip"): {"version": value(60443484), "gpus": []},
        }
    )
    vendor, _, findings = probed(probe_amd, host)
    assert vendor.gpus == ()
    assert platform_of(as_machine(vendor)) == "cpu"
    assert list(findings) == ["amd.render_node_denied"]
    finding = findings["amd.render_node_denied"]
    assert finding.found.startswith("render node not readable: /dev/dri/renderD128")
    assert "group or device mapping" in finding.found
    assert "usermod -aG render,video" in finding.fix
    assert "--device /dev/dri" in finding.fix
    assert vendor.reason == finding.found


def test_a_denied_render_node_of_one_card_is_told_by_its_own_name():
    """KFD knows which node is the card's; HIP lists none because of it."""
    host = machine(
        "mi250x",
        answers={
            ("access", "/dev/dri/renderD128"): "",
            ("access", "/dev/dri/renderD129"): HostError("absent", "No such file or directory"),
            ("child", "ask_hip"): {"error": {"name": "hipErrorNoDevice", "text": "returned 100"}},
        },
    )
    vendor, facts, findings = probed(probe_amd, host)
    assert set(findings) == {"amd.render_node_denied", "amd.no_render_node"}
    assert "renderD129 is not there" in findings["amd.no_render_node"].found
    assert not any(gpu.visible for gpu in vendor.gpus)
    assert facts["amd.gpus.0.visible"].source == "/dev/dri/renderD128"


def test_a_compute_node_without_the_group_is_the_one_finding():
    """The card is described from sysfs; amdsmi's own complaint about rights is not repeated."""
    vendor, _, findings = probed(probe_amd, machine("amd-without-render-group"))
    assert list(findings) == ["amd.kfd_denied"]
    finding = findings["amd.kfd_denied"]
    assert "/dev/kfd is there" in finding.found
    assert "not in the group render" in finding.found
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.unit_count, gpu.visible) == ("gfx942", 304, False)
    assert vendor.status == "unknown"
    assert "ask_hip" not in children_asked(probe_amd, machine("amd-without-render-group"))


def test_a_missing_compute_node_is_told_with_the_option_of_the_container():
    """The driver is bound and /dev/kfd was not passed."""
    gone = {("access", "/dev/kfd"): HostError("absent", "No such file or directory")}
    _, _, findings = probed(probe_amd, machine("mi250x", answers=gone))
    assert list(findings) == ["amd.no_kfd"]
    assert "--device /dev/kfd" in findings["amd.no_kfd"].fix


def test_a_card_without_its_driver_is_named():
    """Nothing but the PCI bus knows it."""
    devices = "/sys/bus/pci/devices"
    host = Replay.of(
        {
            ("list", devices): ["0000:03:00.0"],
            ("read", f"{devices}/0000:03:00.0/class"): "0x030000",
            ("read", f"{devices}/0000:03:00.0/vendor"): "0x1002",
            ("read", f"{devices}/0000:03:00.0/device"): "0x744c",
        }
    )
    vendor, _, findings = probed(probe_amd, host)
    assert list(findings) == ["amd.no_driver"]
    assert "1002:744c at 0000:03:00.0 has no driver bound" in findings["amd.no_driver"].found
    assert [(g.pci_id, g.visible) for g in vendor.gpus] == [("1002:744c", False)]
    assert children_asked(probe_amd, host) == []


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


def test_an_amdsmi_that_crashes_costs_nothing_but_a_finding():
    """The guarded child dies, the card is described."""
    crash = {("child", "ask_amdsmi"): HostError("crashed", "ask_amdsmi: ended by SIGSEGV")}
    vendor, _, findings = probed(probe_amd, machine("mi300x-x8", answers=crash))
    assert "SIGSEGV" in findings["amd.amdsmi_unusable"].found
    assert all(gpu.visible for gpu in vendor.gpus)


def test_a_hip_that_hangs_leaves_the_cards_visible_and_the_question_open():
    """The compute driver lists them and the nodes are open."""
    hang = {("child", "ask_hip"): HostError("timeout", "ask_hip: no answer within 2 s")}
    vendor, facts, findings = probed(probe_amd, machine("mi300x-x8", answers=hang))
    assert all(gpu.visible for gpu in vendor.gpus)
    assert facts["amd.gpus.0.visible"].status == "timeout"
    assert vendor.gpus[0].features == ("sramecc+",)
    assert list(findings) == ["amd.hip_timeout"]


def test_a_hip_that_lists_none_of_the_cards_is_a_finding():
    """An old libamdhip64 passes over a new card without an error."""
    none = {("child", "ask_hip"): {"version": value(50221153), "gpus": []}}
    vendor, _, findings = probed(probe_amd, machine("mi300x-x8", answers=none))
    assert "KFD lists 8 and HIP none" in findings["amd.hip_lists_none"].found
    assert not any(gpu.visible for gpu in vendor.gpus)


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


@pytest.mark.parametrize(
    "text",
    ["", "gfx_target_version", "gfx_target_version -1\nsimd_count 4", "a b c\n" * 9, "\0\0 1"],
)
def test_a_damaged_properties_file_is_no_gpu(text):
    """Lines of any other form than "name number" are passed over."""
    nodes = kfd.NODES
    host = Replay.of({("list", nodes): ["0"], ("read", f"{nodes}/0/properties"): text})
    assert kfd.topology(host).gpus == ()


def test_nodes_that_may_not_be_read_are_counted_as_denied():
    """A container sees the nodes of cards that it was not given."""
    nodes = kfd.NODES
    denied = {("read", f"{nodes}/3/properties"): HostError("denied", "Operation not permitted")}
    host = machine("mi300x-x8", answers=denied)
    assert kfd.topology(host).denied == ("3",)
    assert len(kfd.topology(host).gpus) == 7


def test_a_machine_without_amd_starts_no_child():
    """Absent, with the reason and no finding."""
    vendor, facts, findings = probed(probe_amd, machine("h100x8"))
    assert (vendor.status, findings) == ("absent", {})
    assert facts["amd.gpus"].status == "absent"
    assert children_asked(probe_amd, machine("h100x8")) == []


def test_a_refused_field_costs_no_other():
    """HIP without a UUID call still gives target and memory."""
    answer = machine("mi250x").ask("child", "ask_hip")
    gpus = [gpu | {"name": refused("HipError", "no name")} for gpu in answer["gpus"]]
    host = machine("mi250x", answers={("child", "ask_hip"): answer | {"gpus": gpus}})
    vendor, facts, _ = probed(probe_amd, host)
    assert vendor.gpus[0].name is None
    assert "no name" in facts["amd.gpus.0.name"].reason
    assert vendor.gpus[0].features == ("sramecc+", "xnack-")


def test_a_compute_driver_without_a_gpu_is_no_problem():
    """The module may be loaded where no AMD card is: its list of nodes is empty of GPUs."""
    answers = {
        ("list", "/sys/bus/pci/devices"): [],
        ("list", kfd.NODES): ["0"],
        ("child", "ask_hip"): {"error": {"name": "hipErrorNoDevice", "text": "returned 100"}},
    }
    host = machine("mi250x", answers=answers)
    vendor, _, findings = probed(probe_amd, host)
    assert (vendor.status, findings) == ("absent", {})
    assert children_asked(probe_amd, host) == []
