"""How long rows of states are walked: tiles by operation, arch and how much runs at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import torch

from attnctl.kernels.triton.device_facts import device_of
from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.stand_in import meta_device

NO_CHANGES: Mapping[str, int] = MappingProxyType({})


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """chunk: tokens at a time. rows: of a head's state in one program. prepare_*: of the launch
    before, where there is one; prepare_registers: a cap, 0 for none (NVIDIA alone has it)."""

    chunk: int
    rows: int
    warps: int
    stages: int
    prepare_warps: int = 4
    prepare_registers: int = 0

    @property
    def prepare_options(self) -> dict[str, int]:
        """Of the launch before, as Triton takes them."""
        options = {"num_warps": self.prepare_warps, "num_stages": 1}
        return options | ({"maxnreg": self.prepare_registers} if self.prepare_registers else {})


# no card was there to time: what spills least and fits the smallest shared memory
PORTABLE = {
    "gdn": Walk(chunk=32, rows=64, warps=4, stages=1),
    "kda": Walk(chunk=32, rows=64, warps=4, stages=1, prepare_warps=8),
    "mamba2": Walk(chunk=32, rows=64, warps=4, stages=1),
    "linear": Walk(chunk=32, rows=64, warps=4, stages=1),
}

# waves of 64 lanes: half as many of them hold as much
CDNA = PORTABLE | {"kda": msgspec.structs.replace(PORTABLE["kda"], prepare_warps=4)}
# a quarter of the vector registers of the others
RDNA = {op: msgspec.structs.replace(walk, rows=32) for op, walk in PORTABLE.items()}

MEASURED: dict[str, dict[str, tuple[Walk, Walk]]] = {
    # on an H200, triton 3.6: benchmarks/results/
    "sm_90": {
        "gdn": (
            Walk(chunk=64, rows=32, warps=4, stages=3, prepare_registers=168),
            Walk(chunk=32, rows=64, warps=4, stages=3, prepare_registers=128),
        ),
        "kda": (
            Walk(chunk=64, rows=32, warps=4, stages=3, prepare_warps=8),
            Walk(chunk=64, rows=64, warps=4, stages=3, prepare_warps=8),
        ),
        "mamba2": (Walk(chunk=16, rows=64, warps=4, stages=3),) * 2,
        "linear": (Walk(chunk=32, rows=64, warps=4, stages=4),) * 2,
    },
}
"""By arch and operation: where programs of 64 rows do not fill the device, and where they do."""


def walk_for(op: str, device: torch.device, programs: int) -> Walk:
    """programs: of 64 rows of a head's state each."""
    facts = facts_of(device)
    measured = MEASURED.get(facts.arch)
    if measured is None:
        return untimed(facts.arch)[op]
    few, many = measured[op]
    return many if programs >= 2 * facts.units else few


def facts_of(device: torch.device) -> Device:
    """arch and units of a tensor's device; an Intel GPU is taken for one of some size."""
    if device.type == "xpu":
        return Device("xpu", 64, 65536)
    return device_of(device)


def has_ptx(device: torch.device) -> bool:
    """True where kernels become PTX: on an NVIDIA GPU, or compiled for one."""
    if device.type == "meta":
        return meta_device().arch.startswith("sm_")
    return device.type == "cuda" and torch.version.hip is None


def untimed(arch: str) -> dict[str, Walk]:
    """The tiles by operation of an arch that nobody has timed."""
    if arch.startswith("gfx9"):
        return CDNA
    return RDNA if arch.startswith("gfx1") else PORTABLE
