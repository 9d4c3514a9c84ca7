"""The ceilings of the devices that a run times, measured by the child that tunes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from attnctl.machine import Machine
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import Ceiling


def timed_devices(plans: Iterable[Plan]) -> list[str]:
    """The devices on which kernels run as themselves and can be timed.

    Triton's interpreter says nothing of speed; of Intel's GPUs no clock is read here.
    """
    devices = dict.fromkeys(one.device for one in plans if one.level == "device" and one.runnable)
    return [one for one in devices if one.partition(":")[0] in ("cpu", "cuda")]


def measure(devices: Iterable[str], machine: Machine) -> dict[str, Ceiling]:
    """By device. ChildError: the child that measures cannot start."""
    from attnctl.tune.bench import WorkerBench

    found = {}
    for device in devices:
        with WorkerBench(device) as bench:
            site = bench.site()
        vendor = machine.amd if machine.platform == "rocm" else machine.nvidia
        found[device] = Ceiling(
            device=device,
            read_gbps=site.read_gbps,
            matrix_gflops=site.matrix_gflops,
            cache_bytes=site.cache_bytes,
            torch=site.torch,
            triton=site.triton or "",
            driver="" if device == "cpu" else vendor.driver or "",
            hardware=_hardware(device, machine),
        )
    return found


def _hardware(device: str, machine: Machine) -> str:
    """What the maker calls it; of a processor its microarchitecture too, which tells more."""
    kind, _, index = device.partition(":")
    if kind != "cpu":
        return "".join(gpu.name or "" for gpu in machine.gpus[int(index or 0) :][:1])
    cpu = machine.cpu
    own = f" ({cpu.microarchitecture})" if cpu.model and cpu.microarchitecture else ""
    return f"{cpu.model or cpu.microarchitecture or cpu.arch}{own}"


def highest(before: dict[str, Ceiling], after: dict[str, Ceiling]) -> dict[str, Ceiling]:
    """Each device's better figures, where it was measured twice."""
    found = dict(before)
    for device, one in after.items():
        earlier = before[device]
        found[device] = msgspec.structs.replace(
            earlier,
            read_gbps=max(earlier.read_gbps, one.read_gbps),
            matrix_gflops=max(earlier.matrix_gflops, one.matrix_gflops),
        )
    return found
