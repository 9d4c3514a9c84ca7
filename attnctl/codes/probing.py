"""Codes of what the probe finds wrong around the GPUs: masks, software, the probe itself."""

from __future__ import annotations

Row = tuple[str, str, str]

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
        "PyTorch counts no GPU then; the HIP runtime passes over such a mask.",
        "Set it to -1 to hide all, or unset it.",
    ),
}

SOFTWARE: dict[str, Row] = {
    "libraries.twice": (
        "A process has two copies of one library loaded",
        "Each copy has state of its own: two OpenMP runtimes fight for the cores, two versions of "
        "a CUDA or C++ library may hand each other what they do not understand.",
        "See with `attnctl probe --libs` where both come from; take a folder out of "
        "LD_LIBRARY_PATH, or install packages that share one copy.",
    ),
    "libraries.replaced": (
        "A process runs a library that is gone from the disk",
        "An upgrade under a running program: what it loads from now on is of the other version.",
        "Start the process again.",
    ),
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

PROBE: dict[str, Row] = {
    "cpu.numa_policy": (
        "This process may not bind memory to NUMA nodes",
        "Docker's default filter of system calls forbids get_mempolicy, set_mempolicy and mbind. "
        "Engines that place their weights and caches by node then fail, or read across sockets.",
        "Start the container with --cap-add SYS_NICE.",
    ),
    "probe.internal": (
        "A part of the probe broke off",
        "Something about this machine that the probe was not written for; the rest is complete.",
        "Save a tape with attnctl probe --record FILE, and report it.",
    ),
}
