"""Codes of what the probe finds wrong with a machine. Each finding names its own fix."""

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

VISIBILITY: dict[str, Row] = {
    "visibility.*.invalid": (
        "A visibility mask names a device that is not there",
        "CUDA and HIP hide that entry and all after it; Level Zero passes it over.",
        "Correct the variable that the finding names.",
    ),
    "visibility.cuda.duplicate": (
        "CUDA_VISIBLE_DEVICES names a device twice",
        "CUDA then shows none.",
        "Name each device once.",
    ),
    "visibility.cuda.mig": (
        "A MIG instance stands beside other devices",
        "A CUDA process uses one instance alone.",
        "Name that instance only.",
    ),
    "visibility.cuda.ambiguous": (
        "A UUID prefix fits several devices",
        "CUDA takes a prefix only where it is unique.",
        "Write more of the UUID.",
    ),
    "visibility.cuda.order": (
        "Numbers may mean other GPUs than you think",
        "CUDA numbers different GPUs by speed unless CUDA_DEVICE_ORDER says otherwise.",
        "Set CUDA_DEVICE_ORDER=PCI_BUS_ID.",
    ),
    "visibility.amd.double_mask": (
        "Two masks in a row hide every GPU",
        "ROCR_VISIBLE_DEVICES filters first; the HIP mask then counts what is left from 0.",
        "Unset one of the two.",
    ),
    "visibility.amd.conflict": (
        "Two masks for HIP disagree",
        "HIP takes the first of HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and GPU_DEVICE_ORDINAL.",
        "Unset the others.",
    ),
    "visibility.amd.empty": (
        "A mask is set and empty",
        "PyTorch counts no GPU then, the HIP runtime shows all.",
        "Set it to -1 to hide all, or unset it.",
    ),
}

SOFTWARE: dict[str, Row] = {
    "package.torch.mismatch": (
        "torch is a mix of two builds",
        "Its version.py and its libraries are of different builds.",
        "Reinstall it.",
    ),
    "package.torch.metadata": (
        "torch's metadata and files differ in version",
        "One install was laid over another.",
        "Uninstall it until nothing is left, then install it again.",
    ),
    "package.torch.platform": (
        "torch is built for another kind of machine",
        "A CPU build on a GPU machine computes on the processor.",
        "Install the build for this GPU, from the index that the finding names.",
    ),
    "package.torch.driver": (
        "torch needs a newer NVIDIA driver",
        "CUDA is compatible within one major version.",
        "Update the driver, or install a torch that is built for its CUDA.",
    ),
    "package.*.incomplete": (
        "A package's metadata is there and its files are not",
        "An install broke off, or another package took its folder.",
        "Reinstall it.",
    ),
    "package.*.device_code": (
        "A package has no code for this GPU's architecture",
        "Compiled kernels exist for some architectures only.",
        "Install a build for it.",
    ),
    "package.pynvml.deprecated": (
        "The deprecated distribution pynvml slows every start of Python",
        "It hooks itself into each start. The module pynvml is in nvidia-ml-py.",
        "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
    ),
    "package.pynvml.clash": (
        "Two packages hold the module pynvml",
        "An old distribution's folder hides nvidia-ml-py's file.",
        "pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
    ),
    "toolchain.launcher": (
        "Triton cannot build its launchers",
        "It compiles a small C file per kernel signature: a C compiler and Python.h are needed.",
        "apt install gcc python3-dev, or point CC at a compiler.",
    ),
    "toolchain.ptxas": (
        "Triton's assembler is too old for this GPU",
        "Each new target needs the ptxas of a CUDA release that knows it.",
        "Point TRITON_PTXAS_PATH (or its Blackwell twin) at a newer one.",
    ),
}

PROBING = {**NVIDIA, **AMD, **VISIBILITY, **SOFTWARE}
