"""Which machines have the device that was asked about."""

from __future__ import annotations

from collections.abc import Sequence

from attnctl.exits import InputError
from attnctl.machine import Machine


def with_device(
    machines: Sequence[Machine], device: int
) -> tuple[tuple[Machine, ...], tuple[str, ...]]:
    """The machines that have such a device, and sentences that name the others.

    InputError where none has it.
    """
    kept = tuple(machine for machine in machines if not _lacks(machine, device))
    if machines and not kept:
        check_device(machines[0], device)
    lacking: dict[str, list[str]] = {}
    for machine in machines:
        lacking.setdefault(_lacks(machine, device), []).append(machine.name)
    lacking.pop("", None)
    sentences = (f"--device {device}: {', '.join(names)}: {w}" for w, names in lacking.items())
    return kept, tuple(sentences)


def _lacks(machine: Machine, device: int) -> str:
    """Why a machine has no such device, "" where it has."""
    count = max(1, len(machine.gpus))
    if 0 <= device < count:
        return ""
    return f"has devices 0 to {count - 1}" if count > 1 else "has only device 0"


def check_device(machine: Machine, device: int) -> None:
    """InputError where a machine has no such device."""
    lacks = _lacks(machine, device)
    if lacks:
        raise InputError(f"--device {device}: {machine.name} {lacks}")
