"""What is wrong with the Intel side of a machine, and what would help; silent if all is well."""

from __future__ import annotations

from attnctl.findings import Finding, unknown, unmet
from attnctl.probe.answers import ZeAnswer, reason, works
from attnctl.probe.drm import RenderNode
from attnctl.probe.host import HostError
from attnctl.probe.pci import PciDevice

LEVEL_ZERO = "Level Zero"
DRIVERS = ("xe", "i915")
LIBRARY_FIX = (
    "install the loader and the GPU's user-space driver: Ubuntu: sudo apt install libze1 "
    "libze-intel-gpu1; Fedora: sudo dnf install oneapi-level-zero intel-compute-runtime"
)

Ze = ZeAnswer | HostError


def device_finding(device: PciDevice, node: RenderNode) -> Finding | None:
    """What keeps this process from one GPU, if anything does: its driver, then its render node."""
    what = f"{device.pci_id or 'an Intel GPU'} at {device.bus_id}"
    if device.driver not in DRIVERS:
        return _undriven(device, what)
    if node.access == "rw":
        return None
    if node.path is None or node.access is None:
        return unmet(
            "intel.no_render_node",
            "a render node under /dev/dri for every Intel GPU",
            f"{what} has the driver {device.driver} and no render node: {node.path or '/dev/dri'}",
            node.path or "/dev/dri",
            "in a container add: --device /dev/dri",
        )
    return unmet(
        "intel.render_node_denied",
        f"read and write access to {node.path}",
        f"render node not readable: {node.path} of {what}: group or device mapping",
        node.path,
        "sudo usermod -aG render $USER, then log in again; in a container add: --group-add with "
        "the number of the host's group render",
    )


def level_zero_finding(ze: Ze) -> Finding | None:
    """Why Level Zero does not list the GPUs, where it does not."""
    if works(ze) or (isinstance(ze, HostError) and ze.kind == "unrecorded"):
        return None
    wanted = "Level Zero lists the GPUs"
    if isinstance(ze, HostError) and ze.kind == "absent":
        found = f"Level Zero is not installed: {ze.detail}"
        return unmet("intel.level_zero_absent", wanted, found, LEVEL_ZERO, LIBRARY_FIX)
    if isinstance(ze, HostError):
        fix = "look for lines of the driver xe or i915 in dmesg; a hung GPU needs a reboot"
        return unknown(f"intel.level_zero_{ze.kind}", wanted, reason(ze), LEVEL_ZERO, fix)
    return unmet("intel.level_zero_unusable", wanted, reason(ze), LEVEL_ZERO, LIBRARY_FIX)


def unlisted(device: PciDevice) -> Finding:
    """A GPU that the kernel drives and Level Zero passes over."""
    return unmet(
        "intel.gpu_not_in_level_zero",
        "every Intel GPU with a driver is one that Level Zero lists",
        f"{device.pci_id or 'a GPU'} at {device.bus_id} is not in its list",
        LEVEL_ZERO,
        "update intel-compute-runtime (libze-intel-gpu1) to a release that knows this GPU",
    )


def _undriven(device: PciDevice, what: str) -> Finding:
    bound = f"is bound to {device.driver}" if device.driver else "has no driver bound"
    fix = "sudo modprobe xe (Linux 6.8 and later) or i915; a newer GPU needs a newer kernel"
    if device.driver == "vfio-pci":
        fix = "the GPU is set aside for a virtual machine: run attnctl in that machine"
    return unmet(
        "intel.other_driver" if device.driver else "intel.no_driver",
        "the driver xe or i915 for every Intel GPU on the PCI bus",
        f"{what} {bound}",
        f"{device.path}/driver",
        fix,
    )
