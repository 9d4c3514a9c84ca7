"""Plans cross-compilation: which cases a backend takes on a target, by its own rules."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.machine import Machine
from attnctl.ops.case import Case
from attnctl.registry import Backend
from attnctl.smoke import Plan, sorted_by_rules, takes


def plan_for(target: Machine, backend: Backend, cases: Iterable[Case]) -> Plan:
    """Which of these cases the backend takes on the target, and why not the others."""
    wanted = [case for case in cases if takes(backend, case)]
    runnable, refused = sorted_by_rules(backend, target, wanted, backend.rules)
    arch = target.gpus[0].arch or ""
    return Plan(backend.name, arch, "compile", runnable, refused)
