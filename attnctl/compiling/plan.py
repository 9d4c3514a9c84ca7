"""Plans cross-compilation: which cases a backend takes on a target, by its own rules."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.compiling.declared import spills_bytes
from attnctl.compiling.report import MOST_SPILLS_BYTES
from attnctl.machine import Machine
from attnctl.ops.case import Case
from attnctl.registry import Backend
from attnctl.requirements.devices import capability
from attnctl.smoke.planning import Plan, sorted_by_rules, takes

# below it Triton multiplies by scalar instructions, which takes a compiler minutes and spills
MATRIX_UNIT = capability(at_least=(8, 0), why="the matrix unit, to which Triton compiles products")


def plan_for(
    target: Machine, backend: Backend, cases: Iterable[Case], most_spills_bytes: int | None = None
) -> Plan:
    """Which of these cases the backend takes on the target, and why not the others.

    most_spills_bytes: what a thread may spill, None for what the backend states, or 512.
    """
    wanted = [case for case in cases if takes(backend, case)]
    runnable, refused = sorted_by_rules(backend, target, wanted, (*backend.rules, MATRIX_UNIT))
    arch = target.gpus[0].arch or ""
    if most_spills_bytes is None:
        most_spills_bytes = spills_bytes(backend, arch, MOST_SPILLS_BYTES)
    return Plan(backend.name, arch, "compile", runnable, refused, most_spills_bytes)
