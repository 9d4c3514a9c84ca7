"""What is wrong with the AMD side of a machine, and what would help; silent if all is well."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.findings import Finding, unknown, unmet
from attnctl.probe.answers import AmdsmiAnswer, HipAnswer, reason, works
from attnctl.probe.drm import DRI, node_access
from attnctl.probe.host import Host, HostError, names_in
from attnctl.probe.pci import PciDevice

KFD_NODE = "/dev/kfd"
GROUP_FIX = (
    "sudo usermod -aG render,video $USER, then log in again; in a container add: --device /dev/kfd "
    "--device /dev/dri --group-add with the number of the host's group render"
)

Hip = HipAnswer | HostError
Amdsmi = AmdsmiAnswer | HostError


def undriven(devices: tuple[PciDevice, ...]) -> list[Finding]:
    """One finding for each AMD GPU on the bus that the driver amdgpu does not drive."""
    found = []
    for device in devices:
        # for a GPU that is old enough for the driver radeon there is no ROCm, so nothing would help
        if device.driver in ("amdgpu", "radeon"):
            continue
        what = f"{device.pci_id or 'an AMD GPU'} at {device.bus_id}"
        bound = f"is bound to {device.driver}" if device.driver else "has no driver bound"
        fix = "sudo modprobe amdgpu; if that fails, install amdgpu-dkms and linux-firmware"
        if device.driver == "vfio-pci":
            fix = "the GPU is set aside for a virtual machine: run attnctl in that machine"
        wanted = "the driver amdgpu for every AMD GPU on the PCI bus"
        code = "amd.other_driver" if device.driver else "amd.no_driver"
        found.append(unmet(code, wanted, f"{what} {bound}", f"{device.path}/driver", fix))
    return found


def kfd_finding(kfd: str | None) -> Finding | None:
    """What keeps this process from the compute node, if anything does."""
    if kfd is None:
        return unmet(
            "amd.no_kfd",
            f"the compute node {KFD_NODE}",
            f"an AMD GPU with its driver is there and {KFD_NODE} is not",
            KFD_NODE,
            "in a container add: --device /dev/kfd --device /dev/dri; on a host the kernel needs "
            "CONFIG_HSA_AMD",
        )
    if kfd == "rw":
        return None
    may = "only read" if kfd else "neither read nor write"
    return unmet(
        "amd.kfd_denied",
        f"read and write access to {KFD_NODE}",
        f"{KFD_NODE} is there and this process may {may} it: it is not in the group render",
        KFD_NODE,
        GROUP_FIX,
    )


def render_findings(host: Host, minors: Iterable[int]) -> list[Finding]:
    """Render nodes that this process lacks or may not use. minors: those of the AMD GPUs."""
    found = []
    for path in _render_nodes(host, tuple(minors)):
        may = node_access(host, path)
        if may == "rw":
            continue
        state = "is not there" if may is None else "may not be read and written by this process"
        found.append(
            unmet(
                "amd.no_render_node" if may is None else "amd.render_node_denied",
                f"read and write access to {path}",
                f"render node not readable: {path} {state}: group or device mapping",
                path,
                GROUP_FIX,
            )
        )
    return found


def amdsmi_finding(amdsmi: Amdsmi, used: str) -> Finding | None:
    """amdsmi that is installed and does not work, or that was missed because sysfs says nothing.

    used: the source that told what amdsmi did not.
    """
    if isinstance(amdsmi, AmdsmiAnswer) and amdsmi.error is None:
        return None
    if isinstance(amdsmi, HostError) and amdsmi.kind in ("absent", "unrecorded"):
        if used != "HIP" or amdsmi.kind == "unrecorded":
            return None
        return unknown(
            "amd.amdsmi_missing",
            "amdsmi, or KFD's topology in sysfs",
            f"amdsmi missing, used {used}",
            "amdsmi",
            "install the amdsmi that comes with this ROCm: pip install /opt/rocm/share/amd_smi",
        )
    return unknown(
        "amd.amdsmi_unusable",
        "the amdsmi that is installed works",
        f"amdsmi unusable, used {used}: {reason(amdsmi)}",
        "amdsmi",
        "install the amdsmi of this ROCm (pip install /opt/rocm/share/amd_smi), or uninstall it",
    )


def hip_finding(hip: Hip) -> Finding | None:
    """HIP that is there and does not work. No HIP at all is fine: PyTorch brings its own."""
    if works(hip) or (isinstance(hip, HostError) and hip.kind in ("absent", "unrecorded")):
        return None
    code = f"amd.hip_{hip.kind}" if isinstance(hip, HostError) else "amd.hip_unusable"
    return unknown(
        code,
        "HIP lists the GPUs",
        reason(hip),
        "HIP",
        "compare the ROCm of libamdhip64 with the GPU and the kernel driver: rocminfo says why",
    )


def _render_nodes(host: Host, minors: tuple[int, ...]) -> list[str]:
    if minors:
        return [f"{DRI}/renderD{minor}" for minor in minors]
    try:
        names = [name for name in names_in(host, DRI) if name.startswith("renderD")]
    except HostError:
        names = []
    # without sysfs the first render node stands for the GPU
    return [f"{DRI}/{name}" for name in names] or [f"{DRI}/renderD128"]
