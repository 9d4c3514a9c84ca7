"""NVIDIA machines, invented: what the probe says of each, where from, and what it advises."""

import pytest

from attnctl.findings import Verdict
from attnctl.machine import Memory
from attnctl.probe import pci
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.host import HostError
from attnctl.probe.tape import Replay, read_tape
from tests.probe.gpu_tapes import changed_gpu, children_asked, machine, probed, value


def test_an_h100_box_has_eight_gpus_and_nothing_to_complain_about():
    """Every field of a healthy machine comes from NVML or the CUDA driver."""
    vendor, facts, findings = probed(probe_nvidia, machine("h100x8"))
    assert findings == {}
    assert (vendor.status, vendor.driver, vendor.runtime) == ("ok", "570.133.20", "12.8")
    assert len(vendor.gpus) == 8
    gpu = vendor.gpus[3]
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert (gpu.arch, gpu.capability) == ("sm_90", (9, 0))
    assert gpu.uuid == "GPU-00000004-0000-0000-0000-000000000004"
    assert (gpu.pci_id, gpu.pci_bus_id) == ("10de:2330", "0000:5d:00.0")
    assert (gpu.unit_count, gpu.warp_size, gpu.shared_memory_bytes) == (132, 32, 232_448)
    assert gpu.memory == Memory(
        kind="discrete", total_bytes=85_520_809_984, free_bytes=84_959_428_608
    )
    # 2619 MHz x 2 x 5120 bit: 3352 GB/s, as the data sheet has it
    assert gpu.bandwidth_gbps == pytest.approx(3352.3)
    assert (gpu.nvlink_count, gpu.mig) == (18, ())
    assert [g.logical_index for g in vendor.gpus] == list(range(8))
    assert facts["nvidia.gpus.3.unit_count"].source == "CUDA driver"
    assert facts["nvidia.gpus.3.name"].source == "NVML"


def test_every_field_of_a_gpu_has_a_fact_with_a_source():
    """Nothing is stated without saying where it is from, nothing is missing without a reason."""
    for name in ("h100x8", "h200-mig", "gb10", "jetson-orin", "nvidia-no-driver"):
        vendor, facts, _ = probed(probe_nvidia, machine(name))
        for gpu in vendor.gpus:
            path = f"nvidia.gpus.{gpu.index}"
            for field in ("name", "arch", "capability", "uuid", "pci_id", "pci_bus_id"):
                fact = facts[f"{path}.{field}"]
                known = getattr(gpu, field) is not None
                assert fact.source
                assert known == (fact.status in ("ok", "assumed"))
                assert known or fact.reason


def test_a_gpu_in_mig_mode_is_as_large_as_its_instance():
    """Without a mask CUDA takes the first instance: its memory and its multiprocessors count."""
    vendor, facts, findings = probed(probe_nvidia, machine("h200-mig"))
    (gpu,) = vendor.gpus
    assert gpu.mig == (
        "MIG-00000011-0000-0000-0000-000000000011",
        "MIG-00000012-0000-0000-0000-000000000012",
    )
    assert (gpu.memory.kind, gpu.memory.total_bytes, gpu.unit_count) == ("mig", 74_893_492_224, 60)
    assert gpu.bandwidth_gbps is None
    assert "share" in facts["nvidia.gpus.0.bandwidth_gbps"].reason
    assert findings == {}


def test_a_mask_that_names_a_mig_instance_picks_it():
    """The second instance is smaller, and a prefix of its UUID is enough."""
    mask = {("env", "CUDA_VISIBLE_DEVICES"): "MIG-00000012"}
    vendor, _, findings = probed(probe_nvidia, machine("h200-mig", answers=mask))
    (gpu,) = vendor.gpus
    assert (gpu.visible, gpu.logical_index) == (True, 0)
    assert (gpu.memory.total_bytes, gpu.unit_count) == (18_723_373_056, 16)
    assert findings == {}


def test_mig_mode_without_an_instance_is_a_finding():
    """CUDA shows no device then, whatever nvidia-smi lists."""
    host = changed_gpu("h200-mig", "ask_nvml", mig=[])
    none = {("child", "ask_cuda"): {"error": {"name": "CUDA_ERROR_NO_DEVICE", "text": "100"}}}
    answer = host.ask("child", "ask_nvml")
    host = machine("h200-mig", answers=none | {("child", "ask_nvml"): answer})
    vendor, _, findings = probed(probe_nvidia, host)
    assert "nvidia-smi mig -i 0 -cgi" in findings["nvidia.mig_without_instances"].fix
    assert not vendor.gpus[0].visible


def test_a_gpu_for_one_process_at_a_time_is_a_finding():
    """It can be used as before; NVML's mode 0 is the default, in which several may."""
    vendor, _, findings = probed(
        probe_nvidia, changed_gpu("h200", "ask_nvml", compute_mode={"value": 3})
    )
    assert list(findings) == ["nvidia.exclusive_process"]
    assert "nvidia-smi -i 0 -c DEFAULT" in findings["nvidia.exclusive_process"].fix
    assert vendor.gpus[0].visible
    shared = changed_gpu("h200", "ask_nvml", compute_mode={"value": 0})
    assert probed(probe_nvidia, shared)[2] == {}


def test_gb10_has_the_memory_of_the_machine():
    """NVML refuses to count unified memory: total and available are those of /proc/meminfo."""
    vendor, facts, findings = probed(probe_nvidia, machine("gb10"))
    (gpu,) = vendor.gpus
    assert gpu.memory == Memory(
        kind="unified", total_bytes=130_663_165_952, free_bytes=121_411_960_832
    )
    assert facts["nvidia.gpus.0.memory.total_bytes"].source == "/proc/meminfo"
    assert (gpu.arch, gpu.unit_count, gpu.pci_bus_id) == ("sm_121", 48, "000f:01:00.0")
    assert gpu.bandwidth_gbps is None
    assert facts["nvidia.gpus.0.nvlink_count"].status == "absent"
    assert findings == {}


def test_gb10_is_unified_even_where_only_nvml_answers():
    """The refusal itself is the sign, where the CUDA driver cannot say "integrated"."""
    silent = {("child", "ask_cuda"): HostError("unrecorded", "not on the tape")}
    vendor, facts, _ = probed(probe_nvidia, machine("gb10", answers=silent))
    (gpu,) = vendor.gpus
    assert gpu.memory.kind == "unified"
    assert gpu.memory.total_bytes == 130_663_165_952
    # 6144 cores of 128 a multiprocessor, and the CUDA guide's table
    assert (gpu.unit_count, gpu.shared_memory_bytes) == (48, 101_376)
    assert facts["nvidia.gpus.0.unit_count"].source == "NVML cores / 128 per SM"
    assert facts["nvidia.gpus.0.shared_memory_bytes"].status == "assumed"
    assert gpu.visible


def test_a_jetson_works_without_nvml():
    """The CUDA driver alone describes it, and the finding says that no fix is needed."""
    vendor, facts, findings = probed(probe_nvidia, machine("jetson-orin"))
    (gpu,) = vendor.gpus
    assert (vendor.status, gpu.visible, gpu.arch) == ("ok", True, "sm_87")
    assert (gpu.memory.kind, gpu.memory.total_bytes) == ("unified", 64_000_000 * 1024)
    assert facts["nvidia.gpus.0.pci_id"].status == "absent"
    assert list(findings) == ["nvidia.nvml_absent"]
    finding = findings["nvidia.nvml_absent"]
    assert finding.found == "NVML absent but CUDA works (Jetson)"
    assert (finding.verdict, finding.fix) == (Verdict.UNKNOWN, "")


def test_wsl_has_a_gpu_without_any_node_of_the_driver():
    """The libraries of Windows answer; there is no kernel module to ask."""
    vendor, facts, findings = probed(probe_nvidia, machine("wsl-rtx3090"))
    (gpu,) = vendor.gpus
    assert (gpu.arch, gpu.visible, gpu.unit_count) == ("sm_86", True, 82)
    assert vendor.driver == "572.16"
    assert facts["nvidia.driver"].source == "NVML"
    assert findings == {}


def test_masked_gpus_are_listed_and_not_visible():
    """Physical order stays, logical numbers follow the mask."""
    mask = {("env", "CUDA_VISIBLE_DEVICES"): "5,GPU-00000002"}
    vendor, facts, findings = probed(probe_nvidia, machine("h100x8", answers=mask))
    assert len(vendor.gpus) == 8
    assert {g.index: g.logical_index for g in vendor.gpus if g.visible} == {5: 0, 1: 1}
    assert facts["nvidia.gpus.0.visible"].reason == "masked"
    assert facts["nvidia.gpus.0.visible"].source == "CUDA_VISIBLE_DEVICES=5,GPU-00000002"
    assert findings == {}


def test_an_empty_mask_hides_all_and_the_driver_is_still_well():
    """The vendor is ok: it is the user who hides the GPUs."""
    mask = {("env", "CUDA_VISIBLE_DEVICES"): ""}
    vendor, _, _ = probed(probe_nvidia, machine("h100x8", answers=mask))
    assert vendor.status == "ok"
    assert not any(gpu.visible for gpu in vendor.gpus)


def test_numbers_of_a_mask_count_in_the_order_of_cuda():
    """CUDA lists the fastest first; 0 is then not NVML's first."""
    cuda = machine("h100x8").ask("child", "ask_cuda")
    turned = {("child", "ask_cuda"): cuda | {"gpus": cuda["gpus"][::-1]}}
    mask = {("env", "CUDA_VISIBLE_DEVICES"): "0"}
    vendor, _, _ = probed(probe_nvidia, machine("h100x8", answers=turned | mask))
    assert [gpu.index for gpu in vendor.gpus if gpu.visible] == [7]


def test_a_machine_without_nvidia_starts_no_child_and_has_no_finding():
    """Absent is an answer, not a problem."""
    host = machine("mi300x-x8")
    vendor, facts, findings = probed(probe_nvidia, host)
    assert (vendor.status, vendor.gpus, findings) == ("absent", (), {})
    assert vendor.reason.startswith("no NVIDIA driver")
    assert facts["nvidia.gpus"].status == "absent"
    assert children_asked(probe_nvidia, host) == []


def test_an_empty_tape_is_a_machine_without_nvidia():
    """Every question may fail."""
    empty = read_tape(b'{"schema": "attnctl.tape/1", "entries": []}')
    vendor, _, _ = probe_nvidia(Replay(empty), ())
    assert vendor.status == "absent"


def test_a_driver_without_a_gpu_in_the_machine_is_no_problem():
    """One image serves machines with and without GPUs."""
    host = machine(
        "h100x8",
        answers={
            ("list", pci.DEVICES): [],
            ("list", "/proc/driver/nvidia/gpus"): [],
            ("child", "ask_nvml"): {"driver": value("570.133.20"), "cuda": value(12080)},
            ("child", "ask_cuda"): {"error": {"name": "CUDA_ERROR_NO_DEVICE", "text": "100"}},
        },
    )
    vendor, _, findings = probed(probe_nvidia, host)
    assert (vendor.status, vendor.gpus, findings) == ("absent", (), {})
    assert vendor.driver == "570.133.20"


@pytest.mark.parametrize(
    ("driver", "codes"),
    [("nouveau", ["nvidia.other_driver"]), ("vfio-pci", []), ("nvidia", [])],
)
def test_a_gpu_left_out_beside_gpus_that_work(driver, codes):
    """nouveau is a mistake; a virtual machine's GPU and one of another container are not."""
    device = "/sys/bus/pci/devices/0000:f0:00.0"
    host = machine(
        "h100x8",
        answers={
            ("list", pci.DEVICES): [*machine("h100x8").ask("list", pci.DEVICES), "0000:f0:00.0"],
            ("read", f"{device}/class"): "0x030200",
            ("read", f"{device}/vendor"): "0x10de",
            ("read", f"{device}/device"): "0x2330",
            ("link", f"{device}/driver"): f"../../drivers/{driver}",
        },
    )
    vendor, _, findings = probed(probe_nvidia, host)
    assert list(findings) == codes
    assert (len(vendor.gpus), vendor.status) == (8, "ok")
