"""The targets of cross-compilation: each is the arch of a bundled machine, whose facts it takes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from attnctl.exits import InputError
from attnctl.machine import Gpu, Machine, Package
from attnctl.machines.archs import arch_of
from attnctl.nearest import did_you_mean

NINE = "sm_80,sm_90,sm_100,sm_120,gfx90a,gfx942,gfx950,gfx1100,gfx1201"
"""What the bundled kernels are kept compiling for."""
ALL = "all"

# of two machines of one arch the first by name would be a variant: the plain one speaks for it
_SPEAKS = {"sm_80": "a100-80gb", "sm_90": "h100", "sm_89": "l4", "gfx90a": "mi210"}


def read_targets(text: str) -> tuple[Machine, ...]:
    """The machine that stands for each target of a comma list, in its order; "all" stands for NINE.

    InputError: a target that no bundled machine has, or none at all.
    """
    known = archs()
    words = filter(None, (word.strip().lower() for word in text.split(",")))
    archs_named = (word if word in known else arch_of(word) or word for word in words)
    named = (name for word in archs_named for name in (NINE.split(",") if word == ALL else [word]))
    wanted = list(dict.fromkeys(named))
    if not wanted:
        raise InputError("--compile-for: the list is empty; name targets, as in sm_90,gfx942")
    for name in wanted:
        if name not in known:
            names = (ALL, *sorted(known))
            near = did_you_mean(name, names) or f" Known are {', '.join(names)}."
            raise InputError(f"--compile-for {name}: no such target.{near}")
    return tuple(stand_in(name, known) for name in wanted)


def archs() -> dict[str, Machine]:
    """Arch -> the bundled machine that stands for it; archs that Triton's compiler targets."""
    from attnctl import machines

    found: dict[str, Machine] = {}
    for name in machines.names():
        machine = machines.load(name)
        for gpu in (*machine.nvidia.gpus, *machine.amd.gpus):
            if gpu.arch and (gpu.arch not in found or _SPEAKS.get(gpu.arch) == name):
                found[gpu.arch] = machine
    return found


def stand_in(arch: str, known: dict[str, Machine] | None = None) -> Machine:
    """The machine of a target, with torch and triton on it: the compiler is on this machine.

    KeyError: no bundled machine has the arch.
    """
    machine = (archs() if known is None else known)[arch]
    here = Package(status="assumed", source="attnctl smoke --compile-for")
    packages = {**_absent(machine.usual_packages), "torch": here, "triton": here}
    return msgspec.structs.replace(machine, packages=packages)


def _absent(names: Iterable[str]) -> dict[str, Package]:
    absent = Package(status="absent", source="attnctl smoke --compile-for")
    return dict.fromkeys(names, absent)


def gpu_of(machine: Machine) -> Gpu:
    """The device of a stand-in."""
    return machine.gpus[0]
