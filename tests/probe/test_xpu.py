"""Intel machines, invented: what the probe says of each, where from, and what it advises."""

import pytest

from attnctl.machine import Memory
from attnctl.probe.host import HostError
from attnctl.probe.xe_generation import generation_of
from attnctl.probe.xpu import probe_intel
from tests.probe.gpu_tapes import children_asked, machine, probed, refused, value


@pytest.mark.parametrize(
    ("device", "arch", "compute", "fp64"),
    [
        ("56a0", "xe-hpg", True, False),
        ("56c1", "xe-hpg", True, False),
        ("e20b", "xe2-hpg", True, True),
        ("0bd5", "xe-hpc", True, True),
        ("64a0", "xe2-lpg", True, True),
        ("b080", "xe3-lpg", True, True),
        ("7d55", "xe-lpg", True, False),
        ("a780", "xe-lp", False, False),
        ("4905", "xe-lp", False, False),
    ],
)
def test_an_id_tells_the_generation(device, arch, compute, fp64):
    """Arc, Data Center Max, the graphics in processors, and what PyTorch does not support."""
    generation = generation_of(device)
    assert (generation.arch, generation.compute, generation.fp64) == (arch, compute, fp64)


def test_an_unknown_id_has_no_generation():
    """The next card is not guessed at."""
    assert generation_of("ffff") is None
    assert generation_of(None) is None


def test_an_a770_is_described_by_level_zero():
    """The processor's own graphics are listed beside it and not visible."""
    vendor, facts, findings = probed(probe_intel, machine("arc-a770"))
    card, graphics = vendor.gpus
    assert (card.name, card.arch) == ("Intel(R) Arc(TM) A770 Graphics", "xe-hpg")
    assert (card.unit_count, card.eu_count, card.shared_memory_bytes) == (32, 512, 65_536)
    assert (card.fp16, card.fp64, card.features) == (True, False, ("xmx",))
    assert card.memory == Memory(
        kind="discrete", total_bytes=16_225_243_136, free_bytes=16_900_000_000
    )
    assert (card.pci_id, card.pci_bus_id) == ("8086:56a0", "0000:03:00.0")
    assert (card.visible, card.logical_index) == (True, 0)
    assert "8, 16, 32" in facts["intel.gpus.0.warp_size"].reason
    assert (graphics.pci_id, graphics.visible) == ("8086:a780", False)
    assert "does not support this generation" in facts["intel.gpus.1.visible"].reason
    assert findings == {}
    assert (vendor.status, vendor.driver, vendor.runtime) == (
        "ok",
        "i915, kernel 6.8.0-60-generic",
        "1.6",
    )


def test_a_b580_on_the_new_driver():
    """Xe2 has double precision and twice the local memory."""
    vendor, _, findings = probed(probe_intel, machine("arc-b580"))
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.unit_count, gpu.eu_count) == ("xe2-hpg", 20, 160)
    assert (gpu.shared_memory_bytes, gpu.fp64) == (131_072, True)
    assert vendor.driver.startswith("xe, kernel")
    assert findings == {}


def test_each_tile_of_a_max_1550_is_a_gpu():
    """Level Zero lists tiles as devices, and both have the card's bus id."""
    vendor, _, findings = probed(probe_intel, machine("max1550"))
    assert [(g.arch, g.unit_count, g.pci_bus_id, g.logical_index) for g in vendor.gpus] == [
        ("xe-hpc", 64, "0000:29:00.0", 0),
        ("xe-hpc", 64, "0000:29:00.0", 1),
    ]
    assert vendor.gpus[0].memory.total_bytes == 64 << 30
    assert findings == {}


def test_a_mask_counts_tiles():
    """In the flat hierarchy, 1 is the second tile."""
    mask = {("env", "ZE_AFFINITY_MASK"): "1"}
    vendor, facts, _ = probed(probe_intel, machine("max1550", answers=mask))
    assert [(g.visible, g.logical_index) for g in vendor.gpus] == [(False, None), (True, 0)]
    assert facts["intel.gpus.0.visible"].reason == "masked"
    assert vendor.status == "ok"


def test_without_level_zero_the_card_is_named_and_the_package_too():
    """What the driver's files and the PCI id tell is told; no kernel could run."""
    vendor, facts, findings = probed(probe_intel, machine("arc-b580-without-level-zero"))
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.visible) == ("xe2-hpg", False)
    assert gpu.memory == Memory(kind="discrete", total_bytes=12 << 30)
    assert facts["intel.gpus.0.name"].status == "assumed"
    assert list(findings) == ["intel.level_zero_absent"]
    assert "libze-intel-gpu1" in findings["intel.level_zero_absent"].fix
    assert vendor.status == "unknown"


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        (HostError("timeout", "no answer within 2 s"), "intel.level_zero_timeout", "timeout"),
        (HostError("crashed", "ended by SIGSEGV"), "intel.level_zero_crashed", "unknown"),
        (HostError("failed", "OSError: bad file"), "intel.level_zero_failed", "unknown"),
        ({"error": {"name": "no GPU", "text": "zeInit"}}, "intel.level_zero_unusable", "unknown"),
        ({"gpus": "many"}, "intel.level_zero_garbled", "unknown"),
        ({"gpus": []}, "intel.gpu_not_in_level_zero", "unknown"),
    ],
)
def test_each_way_to_fail_has_its_own_finding(answer, code, status):
    """A hang is not an absence, and an empty list is neither."""
    host = machine("arc-b580", answers={("child", "ask_level_zero"): answer})
    vendor, _, findings = probed(probe_intel, host)
    assert list(findings) == [code]
    assert vendor.status == status
    assert not vendor.gpus[0].visible
    assert vendor.reason


def test_a_render_node_without_access_is_named_and_nothing_is_asked():
    """The group is the cause: Level Zero would only say that there is no device."""
    host = machine("arc-b580", answers={("access", "/dev/dri/renderD128"): ""})
    vendor, _, findings = probed(probe_intel, host)
    assert list(findings) == ["intel.render_node_denied"]
    assert "usermod -aG render" in findings["intel.render_node_denied"].fix
    assert children_asked(probe_intel, host) == []
    assert not vendor.gpus[0].visible


def test_a_missing_render_node_is_told_with_the_option_of_the_container():
    """sysfs shows the driver's node, /dev does not."""
    gone = {("access", "/dev/dri/renderD128"): HostError("absent", "No such file or directory")}
    _, _, findings = probed(probe_intel, machine("arc-b580", answers=gone))
    assert "--device /dev/dri" in findings["intel.no_render_node"].fix


def test_a_card_without_a_driver_is_named():
    """An old kernel does not know the card."""
    gone = {
        ("link", "/sys/bus/pci/devices/0000:03:00.0/driver"): HostError("absent", "no such file")
    }
    _, _, findings = probed(probe_intel, machine("arc-b580", answers=gone))
    assert "8086:e20b at 0000:03:00.0 has no driver bound" in findings["intel.no_driver"].found
    assert "modprobe xe" in findings["intel.no_driver"].fix


def test_graphics_that_pytorch_does_not_support_cost_no_child_and_no_finding():
    """A server or laptop with old Intel graphics is a CPU machine, and all is well."""
    answers = {
        ("list", "/sys/bus/pci/devices"): ["0000:00:02.0"],
        ("child", "ask_level_zero"): HostError("crashed", "must not be asked"),
    }
    host = machine("arc-a770", answers=answers)
    vendor, _, findings = probed(probe_intel, host)
    assert [(g.arch, g.visible) for g in vendor.gpus] == [("xe-lp", False)]
    assert findings == {}
    assert children_asked(probe_intel, host) == []
    assert "does not support" in vendor.reason


def test_an_integrated_gpu_has_the_memory_of_the_machine():
    """Level Zero says "integrated"; total and available are those of /proc/meminfo."""
    answer = machine("arc-b580").ask("child", "ask_level_zero")
    shared = answer["gpus"][0] | {"integrated": value(True), "pci_id": value("8086:64a0")}
    device = ("read", "/sys/bus/pci/devices/0000:03:00.0/device")
    host = machine(
        "arc-b580",
        answers={device: "0x64a0", ("child", "ask_level_zero"): answer | {"gpus": [shared]}},
    )
    vendor, facts, _ = probed(probe_intel, host)
    assert vendor.gpus[0].memory == Memory(
        kind="unified", total_bytes=65_000_000 * 1024, free_bytes=60_000_000 * 1024
    )
    assert facts["intel.gpus.0.memory.total_bytes"].source == "/proc/meminfo"


def test_a_loader_without_the_pci_extension_is_matched_by_id():
    """The bus id then comes from sysfs."""
    answer = machine("arc-b580").ask("child", "ask_level_zero")
    old = answer["gpus"][0] | {"bus_id": refused("ZeError", "not in this loader")}
    host = machine("arc-b580", answers={("child", "ask_level_zero"): answer | {"gpus": [old]}})
    vendor, facts, findings = probed(probe_intel, host)
    (gpu,) = vendor.gpus
    assert (gpu.pci_bus_id, gpu.visible) == ("0000:03:00.0", True)
    assert facts["intel.gpus.0.pci_bus_id"].source == "/sys/bus/pci/devices"
    assert findings == {}


def test_a_machine_without_intel_graphics_starts_no_child():
    """Absent, with the reason and no finding."""
    vendor, facts, findings = probed(probe_intel, machine("h100x8"))
    assert (vendor.status, vendor.reason, findings) == ("absent", "no Intel GPU on the PCI bus", {})
    assert facts["intel.gpus"].status == "absent"
    assert children_asked(probe_intel, machine("h100x8")) == []
