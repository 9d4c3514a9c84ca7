"""What is wrong with the NVIDIA side of a machine, and what would help; silent if all is well."""

from __future__ import annotations

from attnctl.findings import Finding, unknown, unmet
from attnctl.probe.answers import CudaAnswer, NvmlAnswer, NvmlGpu, reason, works
from attnctl.probe.cuda_presence import CONTROL_NODE, Presence
from attnctl.probe.cuda_sources import in_mig_mode
from attnctl.probe.host import HostError
from attnctl.probe.pci import PciDevice

CONTAINER_FIX = (
    "on the host run: sudo nvidia-modprobe -u -c=0; in a container, install the NVIDIA Container "
    "Toolkit on the host and start it with --gpus all"
)
LIBRARY_FIX = (
    "install the driver's libraries of the version of the kernel module; in a container, start it "
    "with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
)
# CUresult names, CUDA driver API, and what their documentation says causes them
_CUDA_FIXES = {
    "CUDA_ERROR_SYSTEM_NOT_READY": "start NVIDIA Fabric Manager: sudo systemctl start "
    "nvidia-fabricmanager",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "reboot, or reinstall the driver so that the kernel "
    "module and libcuda have one version",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "remove the cuda-compat libraries from "
    "LD_LIBRARY_PATH, or update the driver",
    "CUDA_ERROR_NO_DEVICE": "check that the device nodes /dev/nvidia* are in this container",
    "CUDA_ERROR_UNKNOWN": "load the module that CUDA needs: sudo modprobe nvidia_uvm; then reboot "
    "if it stays",
}

_LOOK = "look for Xid or NVRM lines in dmesg; a hung driver needs a reboot"
# nvmlReturn_t, NVML API reference, without NVML_ERROR_
_NVML_FIXES = {
    "LibraryNotFound": LIBRARY_FIX,
    "absent": LIBRARY_FIX,
    "FunctionNotFound": LIBRARY_FIX,
    "DriverNotLoaded": "load the module: sudo modprobe nvidia",
    "NoPermission": "let this process read and write /dev/nvidia* (see: ls -l /dev/nvidia*); in a "
    "container pass the devices with --gpus all",
    "IrqIssue": "the kernel does not get the GPU's interrupts: look for NVRM lines in dmesg, and "
    "update the firmware of the board",
}

EXCLUSIVE_PROCESS = 3
"""nvmlComputeMode_t, NVML API reference; of the others, 2 (Prohibited) shows in CUDA's own list."""

Nvml = NvmlAnswer | HostError
Cuda = CudaAnswer | HostError


def no_driver(devices: tuple[PciDevice, ...]) -> list[Finding]:
    """One finding for each GPU on the bus that no NVIDIA driver drives."""
    return [_undriven(device) for device in devices if device.driver != "nvidia"]


def library_findings(seen: Presence, nvml: Nvml, cuda: Cuda) -> list[Finding]:
    """What keeps NVML or CUDA from working; one cause is told once."""
    cause = _common_cause(seen, nvml, cuda)
    if cause is not None:
        return [cause]
    found = [_nvml_finding(seen, nvml, cuda), _cuda_finding(cuda)]
    return [finding for finding in found if finding is not None]


def gpu_findings(nvml: Nvml) -> list[Finding]:
    """GPUs that the driver lists and that cannot be used, or by one process only."""
    gpus = nvml.gpus if isinstance(nvml, NvmlAnswer) else ()
    found = [_gpu_finding(index, gpu) for index, gpu in enumerate(gpus)]
    return [finding for finding in found if finding is not None]


def _gpu_finding(index: int, gpu: NvmlGpu) -> Finding | None:
    if gpu.error:
        return unmet(
            "nvidia.gpu_unreachable",
            "every GPU that the driver lists can be opened",
            f"GPU {index}: {gpu.error}",
            "NVML",
            "look for Xid errors in dmesg; reboot, or reset it with: "
            f"sudo nvidia-smi -r -i {index}",
        )
    if in_mig_mode(gpu) and not gpu.mig:
        return unmet(
            "nvidia.mig_without_instances",
            "a GPU in MIG mode has at least one instance",
            f"GPU {index} is in MIG mode and has none that this process may use",
            "NVML",
            f"make one: sudo nvidia-smi mig -i {index} -cgi 0 -C; or leave MIG mode: "
            f"sudo nvidia-smi -i {index} -mig 0",
        )
    if gpu.compute_mode.value == EXCLUSIVE_PROCESS:
        return unmet(
            "nvidia.exclusive_process",
            "several processes may use a GPU at once",
            f"GPU {index} is in the compute mode Exclusive Process",
            "NVML",
            f"where several shall share it: sudo nvidia-smi -i {index} -c DEFAULT",
        )
    return None


def not_in_cuda(bus: str) -> Finding:
    return unmet(
        "nvidia.gpu_not_in_cuda",
        "every GPU that NVML lists is one that CUDA can use",
        f"{bus} is in NVML's list and not in CUDA's",
        "CUDA driver",
        "check that its node /dev/nvidiaN is in this container, and that its compute mode is not "
        "Prohibited: nvidia-smi -q -d COMPUTE",
    )


def nvml_error(nvml: Nvml) -> str:
    """The vendor's name of the error of NVML, the kind of a failed child, or "" where it works."""
    if isinstance(nvml, HostError):
        return nvml.kind
    return nvml.error.name.removeprefix("NVMLError_") if nvml.error else ""


def _undriven(device: PciDevice) -> Finding:
    what = f"{device.pci_id or 'an NVIDIA GPU'} at {device.bus_id}"
    source = f"{device.path}/driver"
    if device.driver is None:
        return unmet(
            "nvidia.no_driver",
            "an NVIDIA driver for every NVIDIA GPU on the PCI bus",
            f"no NVIDIA driver: {what} has no driver bound",
            source,
            "install the NVIDIA driver (Ubuntu: sudo ubuntu-drivers install; Debian: sudo apt "
            "install nvidia-driver; RHEL: sudo dnf install nvidia-open), then reboot",
        )
    fix = {
        "nouveau": "install the NVIDIA driver, which blocks nouveau, then reboot",
        "vfio-pci": "the GPU is set aside for a virtual machine: run attnctl in that machine, or "
        "give it back to the nvidia driver",
    }.get(device.driver, "install the NVIDIA driver, then reboot")
    return unmet(
        "nvidia.other_driver",
        "the driver nvidia for every NVIDIA GPU on the PCI bus",
        f"{what} is bound to {device.driver}, which cannot run CUDA",
        source,
        fix,
    )


def _common_cause(seen: Presence, nvml: Nvml, cuda: Cuda) -> Finding | None:
    error = nvml_error(nvml)
    if error == "LibRmVersionMismatch":
        return unmet(
            "nvidia.driver_mismatch",
            "the NVML library and the kernel module have one version",
            f"driver and NVML library versions differ; the loaded kernel module is "
            f"{seen.module or 'of unknown version'}",
            "NVML",
            "reboot, so that the new kernel module is loaded, or reinstall the driver; in a "
            "container, restart it after the host's driver was updated",
        )
    if works(nvml) or works(cuda) or seen.wsl or seen.tegra:
        return None
    if seen.control is None:
        return unmet(
            "nvidia.no_device_nodes",
            f"{CONTROL_NODE} and a node for each GPU",
            f"the kernel module {seen.module or 'nvidia'} is there and {CONTROL_NODE} is not",
            CONTROL_NODE,
            CONTAINER_FIX,
        )
    if "r" not in seen.control or "w" not in seen.control:
        return unmet(
            "nvidia.device_node_denied",
            f"read and write access to {CONTROL_NODE}",
            f"this process may {'only read' if seen.control else 'neither read nor write'} it",
            CONTROL_NODE,
            "join the group that owns the node (see: ls -l /dev/nvidia*), or in a container pass "
            "the devices with --gpus all",
        )
    return None


def _nvml_finding(seen: Presence, nvml: Nvml, cuda: Cuda) -> Finding | None:
    error = nvml_error(nvml)
    if not error or error == "unrecorded":
        return None
    if error == "ImportError":
        return unknown(
            "nvidia.pynvml_missing",
            "the module pynvml, to ask NVML",
            reason(nvml),
            "NVML",
            "pip install nvidia-ml-py",
        )
    if error in ("LibraryNotFound", "absent") and works(cuda):
        where = " (Jetson)" if seen.tegra else ""
        return unknown(
            "nvidia.nvml_absent",
            "NVML, for UUIDs, MIG and NVLink",
            f"NVML absent but CUDA works{where}",
            "NVML",
            "" if seen.tegra else LIBRARY_FIX,
        )
    if error in ("timeout", "crashed"):
        what = "did not answer in time" if error == "timeout" else "crashed"
        return unknown(
            f"nvidia.nvml_{error}",
            "NVML answers",
            f"NVML {what}: {reason(nvml)}",
            "NVML",
            _LOOK,
        )
    fix = _NVML_FIXES.get(error, "" if isinstance(nvml, HostError) else _LOOK)
    return unknown("nvidia.nvml_failed", "NVML answers", reason(nvml), "NVML", fix)


def _cuda_finding(cuda: Cuda) -> Finding | None:
    if works(cuda) or (isinstance(cuda, HostError) and cuda.kind == "unrecorded"):
        return None
    wanted = "the CUDA driver starts (cuInit)"
    if isinstance(cuda, HostError):
        if cuda.kind == "absent":
            return unmet("nvidia.cuda_absent", wanted, reason(cuda), "CUDA driver", LIBRARY_FIX)
        return unknown(f"nvidia.cuda_{cuda.kind}", wanted, reason(cuda), "CUDA driver", _LOOK)
    name = cuda.error.name if cuda.error else ""
    fix = _CUDA_FIXES.get(name, "compare `nvidia-smi` and `cat /proc/driver/nvidia/version`")
    return unmet("nvidia.cuda_unusable", wanted, reason(cuda), "CUDA driver", fix)
