"""Knobs of the Triton kernels of states by flat names, as a profile writes them. No torch.

tile: elements of a state that one program carries, warps: by how many warps; both of the kernel
that steps from token to token. chunks.*: of the kernels that take long rows in chunks or segments.
The rival kernel "steps" leaves chunks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attnctl.exits import InputError
from attnctl.tune.settings import check_knobs, refuse_kernel

STEPS = "steps"
"""The rival kernel that takes long rows a token at a time."""

NO_KNOBS: Mapping[str, Any] = MappingProxyType({})

_WALK = {
    "chunk": 64,
    "rows": 64,
    "warps": 4,
    "stages": 3,
    "prepare_warps": 4,
    "prepare_registers": 0,
}

CHUNKS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "gdn": _WALK,
        "mamba1": {"tile": 1024, "warps": 1, "fill": 16, "least": 64},
        "mamba2": _WALK,
        "linear": _WALK,
        "short_conv": {"part": 256, "warps": 2, "tokens": 16},
    }
)
"""Operation -> knobs of its kernels for long rows. The usual values of a walk (chunk, rows, ...)
depend on the device and the batch: attnctl.kernels.triton.states.launch; these give its types."""

_ANY = ("stages", "fill", "least", "registers")


def known(op: str) -> dict[str, int]:
    """Every knob of an operation's kernels, with a value of its type."""
    return {"tile": 1024, "warps": 1, **{f"chunks.{name}": v for name, v in CHUNKS[op].items()}}


def state_knobs(name: str, op: str, knobs: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    """InputError: a knob or kernel that there is not, or a value that makes no sense."""
    refuse_kernel(name, kernel, (STEPS,))
    found: dict[str, Any] = dict(check_knobs(name, knobs, known(op)))
    for knob, value in found.items():
        least = 0 if knob.endswith("registers") else 1
        if value < least or (value & (value - 1) and not knob.endswith(_ANY)):
            raise InputError(f"{name}: knob {knob} is {value}: must be a power of two")
    return {**found, STEPS: True} if kernel else found


def of_chunks(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs of the kernels for long rows, without what stands before their names."""
    return {name[7:]: value for name, value in knobs.items() if name.startswith("chunks.")}
