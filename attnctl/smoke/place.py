"""Where smoke runs kernels: the device that a user names, on the machine that there is."""

from __future__ import annotations

import msgspec

from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.requirements.devices import NAMES
from attnctl.smoke.trials import Level

# torch calls the devices of ROCm cuda too
DEVICES = {"cuda": ("cuda", "rocm"), "xpu": ("xpu",)}


class Place(msgspec.Struct, frozen=True):
    """Where kernels run: the worker's device, what a run there proves, which GPU of the machine."""

    device: str
    level: Level = "device"
    index: int = 0


def read_place(text: str, machine: Machine) -> Place:
    """The place that a user names: cpu, interpret, cuda, cuda:1, xpu.

    InputError: no such device, or the machine has none.
    """
    kind, colon, number = text.strip().lower().partition(":")
    if kind in ("cpu", "interpret") and not colon:
        return Place(kind, "interpret" if kind == "interpret" else "device")
    if kind not in DEVICES or (colon and not number.isdecimal()):
        known = "cpu, interpret, cuda, cuda:N or xpu"
        raise InputError(f"--device {text}: no such device; it is one of {known}")
    if machine.platform not in DEVICES[kind]:
        found = NAMES[machine.platform]
        raise InputError(f"--device {text}: the device of this machine is {found}")
    count = len(machine.gpus)
    if int(number or 0) >= count:
        have = "only device 0" if count == 1 else f"devices 0 to {count - 1}"
        raise InputError(f"--device {text}: this machine has {have}")
    return Place(f"{kind}:{int(number)}" if colon else kind, "device", int(number or 0))
