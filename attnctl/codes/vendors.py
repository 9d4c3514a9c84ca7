"""Codes of what the probe finds wrong with GPUs and their drivers. Each finding has its own fix."""

from __future__ import annotations

Row = tuple[str, str, str]

NVIDIA: dict[str, Row] = {
    "nvidia.no_driver": (
        "An NVIDIA GPU has no driver",
        "It is on the PCI bus and no kernel driver is bound to it.",
        "Install the NVIDIA driver and reboot.",
    ),
    "nvidia.other_driver": (
        "An NVIDIA GPU is bound to another driver",
        "nouveau cannot run CUDA; vfio-pci sets a GPU aside for a virtual machine.",
        "Install the NVIDIA driver, or run attnctl inside the virtual machine.",
    ),
    "nvidia.driver_mismatch": (
        "The driver's library and its kernel module differ in version",
        "It follows an upgrade without a reboot, or a container older than its host's driver.",
        "Reboot; restart the container.",
    ),
    "nvidia.no_device_nodes": (
        "The driver is loaded and its device nodes are missing",
        "Usual in a container that was started without its GPUs.",
        "Start the container with --gpus all, or make the nodes: sudo nvidia-modprobe -u -c=0.",
    ),
    "nvidia.device_node_denied": (
        "This process may not open the driver's device node",
        "The node's owner, group or the container's device rules forbid it.",
        "Join the group that owns the node, or pass the devices to the container.",
    ),
    "nvidia.gpu_unreachable": (
        "The driver lists a GPU and cannot open it",
        "It fell off the bus, or failed.",
        "Look for Xid errors in dmesg; reset it or reboot.",
    ),
    "nvidia.mig_without_instances": (
        "A GPU is in MIG mode and has no instance",
        "In that mode the GPU itself cannot be used, only its instances.",
        "Make an instance, or leave MIG mode.",
    ),
    "nvidia.exclusive_process": (
        "A GPU takes one process at a time",
        "Its compute mode is Exclusive Process: a second program that opens it fails. Smoke then "
        "runs one worker after the other.",
        "Leave it so where one engine owns the GPU; else change the compute mode.",
    ),
    "nvidia.gpu_not_in_cuda": (
        "NVML lists a GPU that CUDA does not",
        "Its node is not in the container, or its compute mode is Prohibited.",
        "Pass its node to the container, or change the compute mode.",
    ),
    "nvidia.pynvml_missing": (
        "The module pynvml is not installed",
        "Facts then come from the CUDA driver and the kernel, without UUIDs, MIG and NVLink.",
        "pip install nvidia-ml-py (not pynvml, which is a deprecated shell around it).",
    ),
    "nvidia.nvml_absent": (
        "NVML is missing and CUDA works",
        "On Jetson that is as it should be; elsewhere the driver's utilities are missing.",
        "In a container, ask for the capabilities compute,utility.",
    ),
    "nvidia.nvml_*": (
        "NVML did not answer",
        "It was asked in a child process with a time limit, and failed, crashed or hung.",
        "Look for Xid or NVRM lines in dmesg; a hung driver needs a reboot.",
    ),
    "nvidia.cuda_absent": (
        "The CUDA driver's library is missing",
        "The kernel module is there and libcuda is not.",
        "Install the driver's libraries of the same version as the kernel module.",
    ),
    "nvidia.cuda_unusable": (
        "The CUDA driver does not start",
        "cuInit returned the error that the finding names.",
        "The finding's fix is for that error.",
    ),
    "nvidia.cuda_*": (
        "The CUDA driver did not answer",
        "It was asked in a child process with a time limit, and crashed or hung.",
        "Look for Xid or NVRM lines in dmesg; a hung driver needs a reboot.",
    ),
}

AMD: dict[str, Row] = {
    "amd.no_driver": (
        "An AMD GPU has no driver",
        "It is on the PCI bus and amdgpu is not bound to it.",
        "sudo modprobe amdgpu, or install amdgpu-dkms and linux-firmware.",
    ),
    "amd.other_driver": (
        "An AMD GPU is bound to another driver",
        "vfio-pci sets a GPU aside for a virtual machine.",
        "Run attnctl in that machine, or give the GPU back to amdgpu.",
    ),
    "amd.no_kfd": (
        "The compute node /dev/kfd is missing",
        "The driver is there; a container was started without the node, or the kernel without it.",
        "In a container add --device /dev/kfd --device /dev/dri.",
    ),
    "amd.kfd_denied": (
        "This process may not open /dev/kfd",
        "The node belongs to the group render (or video).",
        "sudo usermod -aG render,video $USER, then log in again.",
    ),
    "amd.no_render_node": (
        "A GPU's render node is missing",
        "A container was started without /dev/dri.",
        "In a container add --device /dev/dri.",
    ),
    "amd.render_node_denied": (
        "This process may not open a GPU's render node",
        "The node belongs to the group render; in a container its number may differ.",
        "Join the group, or add --group-add with the number of the host's group.",
    ),
    "amd.amdsmi_missing": (
        "amdsmi is missing, and sysfs does not tell",
        "The facts came from HIP instead.",
        "Install the amdsmi that comes with this ROCm.",
    ),
    "amd.amdsmi_unusable": (
        "amdsmi is installed and does not work",
        "The wheel and the ROCm library must be of one version.",
        "Install the amdsmi of this ROCm, or uninstall it.",
    ),
    "amd.hip_*": (
        "HIP is there and does not list the GPUs",
        "Its ROCm does not fit the GPU or the kernel driver, or it crashed or hung.",
        "rocminfo says why.",
    ),
}

INTEL: dict[str, Row] = {
    "intel.no_driver": (
        "An Intel GPU has no driver",
        "It is on the PCI bus and neither xe nor i915 is bound to it.",
        "sudo modprobe xe (Linux 6.8 and later) or i915; a newer GPU needs a newer kernel.",
    ),
    "intel.other_driver": (
        "An Intel GPU is bound to another driver",
        "vfio-pci sets a GPU aside for a virtual machine.",
        "Run attnctl in that machine, or give the GPU back to xe or i915.",
    ),
    "intel.no_render_node": (
        "A GPU's render node is missing",
        "A container was started without /dev/dri.",
        "In a container add --device /dev/dri.",
    ),
    "intel.render_node_denied": (
        "This process may not open a GPU's render node",
        "The node belongs to the group render; in a container its number may differ.",
        "sudo usermod -aG render $USER, then log in again.",
    ),
    "intel.level_zero_absent": (
        "Level Zero is not installed",
        "Its loader and the GPU's user-space driver are what every Intel runtime builds on.",
        "Install them: the finding names the packages.",
    ),
    "intel.level_zero_*": (
        "Level Zero did not list the GPUs",
        "It was asked in a child process with a time limit, and failed, crashed or hung.",
        "Look for lines of xe or i915 in dmesg; update the user-space driver.",
    ),
    "intel.gpu_not_in_level_zero": (
        "Level Zero passes over a GPU that the kernel drives",
        "The user-space driver is older than the GPU.",
        "Update intel-compute-runtime.",
    ),
}
