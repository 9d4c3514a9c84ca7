"""Machines by what is written on the box: an architecture ("sm_121", "12.1", "gfx1151"), a name.

An architecture is no machine: what all devices of it share is known (compute capability, shared
memory of a block, warp size), and how many units and how much memory one has is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from attnctl.exits import InputError
from attnctl.machine import Cpu, Fact, Gpu, Machine, Vendor

_CAPABILITY = re.compile(r"^(?:sm[ _-]?|compute_?)?(\d{1,2})[._]?(\d)[af]?$", re.ASCII)
# HIP names the features behind it: "gfx942:sramecc+:xnack-"
_GFX = re.compile(r"^(gfx[0-9a-f]{3,4})(?::[a-z]+[+-])*$")

SHARED_KIB = {
    (7, 0): 96, (7, 2): 96, (7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99,
    (9, 0): 227, (10, 0): 227, (10, 3): 227, (11, 0): 227, (12, 0): 99, (12, 1): 99,
}  # fmt: skip
"""Compute capability -> most shared memory of one block in KiB (CUDA programming guide, technical
specifications per compute capability)."""


def arch_of(text: str) -> str | None:
    """The architecture that a text names, as compilers write it; None where it names none."""
    word = text.strip().lower()
    named = _GFX.match(word)
    if named is not None:
        return named[1]
    found = _CAPABILITY.match(word)
    # a bare number is a product ("4090"): a capability has a point or says sm
    if found is None or word.isdecimal():
        return None
    return f"sm_{found[1]}{found[2]}"


def machine_of_arch(text: str, bundled: Iterable[Machine]) -> Machine | None:
    """A machine of which only the architecture is known; None where the text names none.

    InputError: an architecture of no generation that a bundled machine has.
    """
    arch = arch_of(text)
    if arch is None:
        return None
    found = _nearest(arch, bundled)
    if found is None:
        raise InputError(f"--machine {text}: no bundled machine is of this generation of GPUs")
    machine, gpu = found
    own = _gpu(arch, gpu)
    vendor = Vendor(status="ok", source=f"--machine {text}", gpus=(own,))
    side = "amd" if arch.startswith("gfx") else "nvidia"
    said = f"an architecture was named: what {machine.name} has of its own is not taken over"
    return msgspec.structs.replace(
        machine,
        name=arch,
        sources=(said,),
        # nor the processor beside it: an integrated one says nothing of other machines of the arch
        cpu=Cpu(status="unknown", source=f"--machine {text}"),
        facts={f"{side}.gpus.0.arch": Fact(status="assumed", source=f"--machine {text}")},
        **{side: vendor},
    )


def _nearest(arch: str, bundled: Iterable[Machine]) -> tuple[Machine, Gpu] | None:
    """A bundled machine of this architecture, else of its generation."""
    same: tuple[Machine, Gpu] | None = None
    for machine in bundled:
        for gpu in (*machine.nvidia.gpus, *machine.amd.gpus):
            if gpu.arch == arch:
                return machine, gpu
            if gpu.arch is not None and generation(gpu.arch) == generation(arch):
                same = same or (machine, gpu)
    return same


def generation(arch: str) -> str:
    """What architectures of one generation share: sm_12 of sm_121, gfx11 of gfx1151."""
    if arch.startswith("sm_"):
        return arch[:-1]
    # gfx90a and gfx942 are two generations, gfx1100 and gfx1151 one; gfx1250 is no RDNA 4
    return arch[:5] if len(arch) == 7 and not arch.startswith("gfx125") else arch


def _gpu(arch: str, like: Gpu) -> Gpu:
    """A device of this architecture, like another of it or of its generation."""
    capability, shared = like.capability, like.shared_memory_bytes
    if arch.startswith("sm_"):
        capability = (int(arch[3:-1]), int(arch[-1]))
        known = SHARED_KIB.get(capability)
        shared = known * 1024 if known else None
    return Gpu(
        index=0,
        logical_index=0,
        arch=arch,
        capability=capability,
        features=like.features if like.arch == arch else (),
        warp_size=like.warp_size,
        shared_memory_bytes=shared,
        fp64=like.fp64,
        fp16=like.fp16,
    )
