"""Whether a backend's packages are installed on a machine, and whether it could run there.

Only rules about the machine are asked: those of a layer, and the kernels themselves, may still say
no (`attnctl select`, `attnctl smoke`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from attnctl.findings import Finding, Verdict, unknown, unmet
from attnctl.layer import Layer
from attnctl.model.spec import LayerGroup
from attnctl.profile.find import Target
from attnctl.registry import Backend, Registry
from attnctl.requirements.rule import Rule, Subject
from attnctl.selection.memo import answer_of
from attnctl.support.table import Matrix, Row

Known = Literal["yes", "no", "unknown"]
# each of these rules takes any one of its packages
PACKAGE_CODES = ("package_missing", "flash_version")
# rules about a machine do not look at it; a subject has to have one
LAYER = Layer(
    group=LayerGroup(kind="full", layers=(0,), head_size=128, num_heads=1, num_kv_heads=1),
    op="paged",
    dtype="bfloat16",
    dtype_source="",
    kv_cache_dtype="auto",
    kv_cache_dtype_source="",
    block_size=None,
    heads=1,
    kv_heads=1,
    features=(),
)


def on_machine(table: Matrix, registry: Registry, where: Target) -> Matrix:
    """The support table with what of it is installed and usable on a device."""
    machine = where.machine
    subject = Subject(machine, machine.platform, where.gpu, LAYER)
    rows = tuple(_row(row, registry.get(row.name), subject) for row in table.rows)
    return msgspec.structs.replace(table, rows=rows, machine=machine.name)


def _row(row: Row, backend: Backend | None, subject: Subject) -> Row:
    if backend is None:
        return row
    # on a device that it is not for, what it would need on one that it is for
    there = subject.platform if subject.platform in row.platforms else row.platforms[0]
    wanted = [rule for rule in backend.rules if _asks_packages(rule, there)]
    installed = _together([_presence(rule, subject) for rule in wanted])
    findings = [*_findings(backend, subject), *_absent(wanted, subject)]
    reasons = [f"{one.code}: wants {one.wanted}, found {one.found}" for one in findings]
    usable: Known = "yes"
    if findings:
        usable = "no" if any(one.verdict is Verdict.UNMET for one in findings) else "unknown"
    if row.kernel == "planned":
        usable, reasons = "no", [*reasons, "its kernel is not written yet"]
    return msgspec.structs.replace(
        row, installed=installed, usable=usable, not_usable=tuple(dict.fromkeys(reasons))
    )


def _asks_packages(rule: Rule, platform: str) -> bool:
    return rule.code in PACKAGE_CODES and (not rule.platforms or platform in rule.platforms)


def _findings(backend: Backend, subject: Subject) -> Iterator[Finding]:
    """What rules about the machine alone hold against it."""
    for rule in backend.rules:
        finding = answer_of(rule, subject) if rule.about == "machine" else None
        if finding is not None and not finding.met:
            yield finding


def _absent(rules: list[Rule], subject: Subject) -> Iterator[Finding]:
    """Packages of which a rule about layers wants one, where none is there for any layer."""
    for rule in rules:
        if rule.about != "machine" and _asks_packages(rule, subject.platform):
            found = _presence(rule, subject)
            if found == "no":
                yield unmet(rule.code, rule.wanted, "not installed")
            elif found == "unknown":
                yield unknown(rule.code, rule.wanted, "packages not probed")


def _presence(rule: Rule, subject: Subject) -> Known:
    """Whether one of a rule's packages is there, whatever it is worth."""
    packages = subject.machine.packages
    found = {packages[name].status for name in rule.packages if name in packages}
    if found & {"ok", "assumed"}:
        return "yes"
    return "unknown" if found & {"unknown", "timeout"} or not packages else "no"


def _together(answers: list[Known]) -> Known:
    """All of them."""
    return next((bad for bad in ("no", "unknown") if bad in answers), "yes")
