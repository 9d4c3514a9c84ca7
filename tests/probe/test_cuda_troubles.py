"""What is wrong with an NVIDIA machine: one finding for each trouble, and its advice."""

import pytest

from attnctl.probe import pci
from attnctl.probe.cuda import probe_nvidia
from attnctl.probe.host import HostError
from tests.probe.gpu_tapes import changed_gpu, children_asked, machine, probed, refused, value


def test_a_library_of_another_version_than_the_kernel_module_is_one_finding():
    """The mismatch explains both libraries; the GPU is named by the kernel and not usable."""
    vendor, _, findings = probed(probe_nvidia, machine("nvidia-driver-mismatch"))
    assert list(findings) == ["nvidia.driver_mismatch"]
    finding = findings["nvidia.driver_mismatch"]
    assert "driver and NVML library versions differ" in finding.found
    assert "550.120" in finding.found
    assert finding.fix.startswith("reboot")
    (gpu,) = vendor.gpus
    assert (gpu.name, gpu.visible) == ("NVIDIA GeForce RTX 4090", False)
    assert (vendor.status, vendor.driver) == ("unknown", "550.120")
    assert vendor.reason == finding.found


def test_gpus_without_the_driver_are_named_with_the_fix():
    """One GPU with no driver, one with nouveau: each has its own advice; no child is started."""
    vendor, _, findings = probed(probe_nvidia, machine("nvidia-no-driver"))
    assert [(g.pci_id, g.visible) for g in vendor.gpus] == [
        ("10de:2684", False),
        ("10de:1eb8", False),
    ]
    assert "10de:2684 at 0000:01:00.0 has no driver bound" in findings["nvidia.no_driver"].found
    assert "nvidia-driver" in findings["nvidia.no_driver"].fix
    assert "bound to nouveau" in findings["nvidia.other_driver"].found
    assert vendor.status == "unknown"
    assert children_asked(probe_nvidia, machine("nvidia-no-driver")) == []


def test_a_gpu_set_aside_for_a_virtual_machine_is_said_to_be():
    """vfio-pci is on purpose: the advice is not to install a driver."""
    link = ("link", "/sys/bus/pci/devices/0000:01:00.0/driver")
    host = machine("nvidia-no-driver", answers={link: "../../drivers/vfio-pci"})
    first, second = probe_nvidia(host, pci.scan(host))[2]
    assert "virtual machine" in first.fix
    assert "nouveau" in second.found


def test_a_container_without_device_nodes_is_told_about_gpus_all():
    """The kernel module shows through /sys; the nodes and the libraries do not."""
    vendor, _, findings = probed(probe_nvidia, machine("nvidia-container-without-devices"))
    assert list(findings) == ["nvidia.no_device_nodes"]
    assert "--gpus all" in findings["nvidia.no_device_nodes"].fix
    assert findings["nvidia.no_device_nodes"].source == "/dev/nvidiactl"
    (gpu,) = vendor.gpus
    assert (gpu.name, gpu.visible) == ("NVIDIA H200", False)


def test_a_node_that_may_not_be_opened_is_named():
    """The node is there and denied: group, not driver."""
    denied = {("access", "/dev/nvidiactl"): ""}
    host = machine("nvidia-container-without-devices", answers=denied)
    _, _, findings = probed(probe_nvidia, host)
    assert list(findings) == ["nvidia.device_node_denied"]
    assert "neither read nor write" in findings["nvidia.device_node_denied"].found


def test_a_hanging_nvml_leaves_what_the_cuda_driver_knows():
    """The GPU stays usable; what only NVML knows is a timeout and not absent."""
    vendor, facts, findings = probed(probe_nvidia, machine("nvidia-nvml-hang"))
    (gpu,) = vendor.gpus
    assert (vendor.status, gpu.visible, gpu.arch) == ("ok", True, "sm_89")
    assert (gpu.memory.kind, gpu.memory.total_bytes) == ("discrete", 47_676_194_816)
    assert gpu.memory.free_bytes is None
    assert facts["nvidia.gpus.0.memory.free_bytes"].status == "timeout"
    assert facts["nvidia.gpus.0.nvlink_count"].status == "timeout"
    # 9001 MHz x 2 x 384 bit
    assert gpu.bandwidth_gbps == pytest.approx(864.1)
    assert facts["nvidia.gpus.0.bandwidth_gbps"].source == "CUDA driver clock x bus width"
    assert vendor.driver == "550.127.05"
    assert list(findings) == ["nvidia.nvml_timeout"]


def test_when_both_libraries_hang_the_vendor_is_a_timeout():
    """The kernel still names the GPU, and nothing is called absent."""
    hang = {("child", "ask_cuda"): HostError("timeout", "ask_cuda: no answer within 2 s")}
    vendor, _, findings = probed(probe_nvidia, machine("nvidia-nvml-hang", answers=hang))
    assert vendor.status == "timeout"
    assert [(g.name, g.visible) for g in vendor.gpus] == [("NVIDIA L40S", False)]
    assert set(findings) == {"nvidia.nvml_timeout", "nvidia.cuda_timeout"}


def test_a_hanging_cuda_driver_does_not_hide_gpus_that_nvml_lists():
    """Starting eight GPUs may take longer than the limit: not knowing is not "no"."""
    hang = {("child", "ask_cuda"): HostError("timeout", "ask_cuda: no answer within 2 s")}
    vendor, facts, findings = probed(probe_nvidia, machine("h100x8", answers=hang))
    assert all(gpu.visible for gpu in vendor.gpus)
    assert facts["nvidia.gpus.0.visible"].status == "timeout"
    assert vendor.gpus[0].unit_count == 132
    assert list(findings) == ["nvidia.cuda_timeout"]


def test_a_crash_of_the_cuda_driver_makes_the_gpus_unusable():
    """What kills the child would kill the user's program."""
    crash = {("child", "ask_cuda"): HostError("crashed", "ask_cuda: ended by SIGSEGV")}
    vendor, _, findings = probed(probe_nvidia, machine("h100x8", answers=crash))
    assert not any(gpu.visible for gpu in vendor.gpus)
    assert findings["nvidia.cuda_crashed"].found == "ask_cuda: ended by SIGSEGV"
    assert vendor.status == "unknown"


def test_an_answer_of_the_wrong_shape_is_garbled():
    """A library or a tape that answers nonsense costs its own facts only."""
    for nonsense in (7, [], {"gpus": 3}, {"gpus": [{"name": {"value": 5}}]}, {"gpus": [None]}):
        host = machine("h100x8", answers={("child", "ask_nvml"): nonsense})
        vendor, facts, findings = probed(probe_nvidia, host)
        assert list(findings) == ["nvidia.nvml_failed"]
        assert len(vendor.gpus) == 8
        assert facts["nvidia.gpus.0.name"].source == "CUDA driver"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"),
        ("CUDA_ERROR_UNKNOWN", "nvidia_uvm"),
        ("CUDA_ERROR_SOMETHING_NEW", "nvidia-smi"),
    ],
)
def test_an_error_of_cuinit_has_its_own_advice(name, advice):
    """NVML works and CUDA does not: the GPU is described and not usable."""
    error = {("child", "ask_cuda"): {"error": {"name": name, "text": "cuInit returned 1"}}}
    vendor, _, findings = probed(probe_nvidia, machine("h100x8", answers=error))
    assert list(findings) == ["nvidia.cuda_unusable"]
    assert name in findings["nvidia.cuda_unusable"].found
    assert advice in findings["nvidia.cuda_unusable"].fix
    assert vendor.gpus[0].memory.total_bytes == 85_520_809_984
    assert not vendor.gpus[0].visible


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("NoPermission", "ls -l /dev/nvidia*"),
        ("IrqIssue", "firmware of the board"),
        ("DriverNotLoaded", "modprobe nvidia"),
        ("FunctionNotFound", "NVIDIA_DRIVER_CAPABILITIES"),
        ("Unknown", "dmesg"),
        ("GpuIsLost", "dmesg"),
        ("Timeout", "dmesg"),
    ],
)
def test_every_error_of_nvml_has_advice(name, advice):
    """CUDA works, so that the GPUs stay usable; what is wrong with NVML is said beside."""
    error = {("child", "ask_nvml"): {"error": {"name": f"NVMLError_{name}", "text": "as said"}}}
    vendor, _, findings = probed(probe_nvidia, machine("h100x8", answers=error))
    assert list(findings) == ["nvidia.nvml_failed"]
    assert advice in findings["nvidia.nvml_failed"].fix
    assert all(gpu.visible for gpu in vendor.gpus)


def test_a_gpu_of_no_bytes_was_not_counted():
    """NVML's zero gives way to what CUDA knows."""
    vendor, facts, _ = probed(probe_nvidia, changed_gpu("h100x8", "ask_nvml", memory=value([0, 0])))
    assert vendor.gpus[0].memory.total_bytes
    assert vendor.gpus[0].memory.free_bytes is None
    assert facts["nvidia.gpus.0.memory.total_bytes"].source == "CUDA driver"


def test_without_pynvml_the_cuda_driver_is_enough_and_the_package_is_named():
    """The finding names the distribution that has the module."""
    missing = {("child", "ask_nvml"): {"error": {"name": "ImportError", "text": "no pynvml"}}}
    vendor, _, findings = probed(probe_nvidia, machine("h100x8", answers=missing))
    assert findings["nvidia.pynvml_missing"].fix == "pip install nvidia-ml-py"
    assert len([gpu for gpu in vendor.gpus if gpu.visible]) == 8
    assert vendor.runtime == "12.8"


def test_a_gpu_that_fell_off_the_bus_does_not_take_the_others_with_it():
    """NVML lists it and cannot open it."""
    answer = machine("h100x8").ask("child", "ask_nvml")
    lost = {"error": "NVMLError_GpuIsLost: GPU is lost"}
    cuda = machine("h100x8").ask("child", "ask_cuda")
    host = machine(
        "h100x8",
        answers={
            ("child", "ask_nvml"): answer | {"gpus": [*answer["gpus"][:7], lost]},
            ("child", "ask_cuda"): cuda | {"gpus": cuda["gpus"][:7]},
        },
    )
    vendor, _, findings = probed(probe_nvidia, host)
    assert [gpu.visible for gpu in vendor.gpus] == [True] * 7 + [False]
    assert list(findings) == ["nvidia.gpu_unreachable"]
    assert "GPU 7" in findings["nvidia.gpu_unreachable"].found


def test_a_gpu_that_nvml_lists_and_cuda_does_not_is_not_usable():
    """A container may have the node of one GPU and the list of all."""
    cuda = machine("h100x8").ask("child", "ask_cuda")
    fewer = {("child", "ask_cuda"): cuda | {"gpus": cuda["gpus"][:7]}}
    vendor, facts, findings = probed(probe_nvidia, machine("h100x8", answers=fewer))
    assert [gpu.visible for gpu in vendor.gpus] == [True] * 7 + [False]
    assert "0000:db:00.0" in findings["nvidia.gpu_not_in_cuda"].found
    assert facts["nvidia.gpus.7.visible"].status == "absent"


@pytest.mark.parametrize(
    ("clock", "width"), [(0, 5120), (2619, 0), (1, 8), (10**9, 5120), (None, 5120)]
)
def test_a_clock_or_a_width_that_makes_no_sense_gives_no_bandwidth(clock, width):
    """Unknown with a reason is better than a number that a profile would trust."""
    fields = {
        "memory_clock_mhz": refused() if clock is None else value(clock),
        "bus_width_bits": value(width),
    }
    answer = machine("h200-mig").ask("child", "ask_cuda")
    host = changed_gpu("nvidia-a10-and-amd-mi210", "ask_nvml", **fields)
    answer = host.ask("child", "ask_cuda")
    gpu = answer["gpus"][0] | {"memory_clock_khz": refused("CudaError", "CUDA_ERROR_INVALID_VALUE")}
    host = machine(
        "nvidia-a10-and-amd-mi210",
        answers={
            ("child", "ask_nvml"): host.ask("child", "ask_nvml"),
            ("child", "ask_cuda"): answer | {"gpus": [gpu]},
        },
    )
    vendor, facts, _ = probed(probe_nvidia, host)
    assert vendor.gpus[0].bandwidth_gbps is None
    assert facts["nvidia.gpus.0.bandwidth_gbps"].status == "unknown"
    assert facts["nvidia.gpus.0.bandwidth_gbps"].reason
