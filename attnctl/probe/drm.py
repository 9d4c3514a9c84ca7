"""Render nodes: which file under /dev/dri is a GPU's, and what this process may do with it."""

from __future__ import annotations

import msgspec

from attnctl.probe.host import Host, HostError, access, names_in
from attnctl.probe.pci import PciDevice

DRI = "/dev/dri"


class RenderNode(msgspec.Struct, frozen=True):
    """access: "rw", "r", "w" or ""; None where the node is not there. card: its name in sysfs."""

    path: str | None = None
    access: str | None = None
    card: str | None = None


def render_node(host: Host, device: PciDevice) -> RenderNode:
    """The render node that the driver made for a device, if it made one."""
    try:
        names = names_in(host, f"{device.path}/drm")
    except HostError:
        return RenderNode()
    card = next((name for name in names if name.startswith("card")), None)
    node = next((name for name in names if name.startswith("renderD")), None)
    if node is None:
        return RenderNode(card=card)
    path = f"{DRI}/{node}"
    return RenderNode(path, node_access(host, path), card)


def node_access(host: Host, path: str) -> str | None:
    """What this process may do with a device node; None where it is not there."""
    try:
        return access(host, path)
    except HostError as error:
        # a folder that may not be entered hides its nodes
        return None if error.kind == "absent" else ""
