"""Checks of the rules: each answers in a finding that a user can read, on every bundled machine."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.conformance import fail
from attnctl.findings import Finding, Verdict
from attnctl.layer import Layer
from attnctl.machine import Machine
from attnctl.machines.assumed import assume
from attnctl.ops.catalog import all_cases, layer_for
from attnctl.registry import Backend, Registry
from attnctl.requirements.rule import Rule, Subject
from attnctl.select import select, subject_of
from attnctl.selection.memo import Memo

ASSUMED = ("all", "none")
"""Packages on the machines: with every one there, rules about layers alone decide; without any,
rules about packages must say so."""


def check_findings(backend: Backend, registry: Registry) -> None:
    """Every rule gives None or a Finding with its own code, both sides, and a remedy as text."""
    for machine in _machines(registry):
        for layer in layers():
            subject = subject_of(machine, layer)
            for rule in backend.rules:
                _check_finding(backend, rule, subject)


def check_other_operations(backend: Backend, registry: Registry) -> None:
    """A layer of an operation that it does not compute is refused by some rule, everywhere."""
    for machine in _machines(registry):
        for layer in layers():
            if layer.op in backend.ops:
                continue
            subject = subject_of(machine, layer)
            if all(finding.met for finding in _findings(backend, subject)):
                fail(
                    backend,
                    f"its rules take {layer.op} layers, which are not in its ops "
                    f"({', '.join(backend.ops)}): add operation({_quoted(backend.ops)})",
                )


def check_select(backend: Backend, registry: Registry) -> None:
    """select asks it once on every machine, it serves some layer on one, and has a place there."""
    served, memo, alone = False, Memo(), Registry((backend,))
    for machine in _machines(registry):
        for layer in (one for one in layers() if one.op in backend.ops):
            decision = select(layer, machine, alone, memo=memo)
            found = [one for one in decision.candidates if one.name == backend.name]
            if len(found) != 1:
                fail(backend, f"select names it {len(found)} times on {machine.name}, wanted once")
            (candidate,) = found
            if candidate.ok and candidate.place is None:
                fail(
                    backend,
                    f"it serves {layer.op} on {machine.name} and stands in no order there: add "
                    f'Rank(platform="{machine.platform}", place=...)',
                )
            served = served or candidate.ok
    if not served:
        fail(backend, "its rules take no layer of its operations on any bundled machine")


def layers() -> tuple[Layer, ...]:
    """The layers that the cases of all operations demand, each once."""
    return tuple({repr(layer): layer for layer in map(layer_for, all_cases())}.values())


def _machines(registry: Registry) -> Iterator[Machine]:
    """Every bundled machine, with each choice of ASSUMED."""
    from attnctl import machines

    for name in machines.names():
        machine = machines.load(name)
        for choice in ASSUMED:
            yield assume(machine, choice, registry).machine


def _findings(backend: Backend, subject: Subject) -> list[Finding]:
    answers = (rule.check(subject) for rule in backend.rules)
    return [finding for finding in answers if finding is not None]


def _check_finding(backend: Backend, rule: Rule, subject: Subject) -> None:
    where = f"rule {rule.code} on {subject.machine.name}"
    try:
        finding = rule.check(subject)
    except Exception as error:
        fail(backend, f"{where} raised {type(error).__name__}: {error}")
    if finding is None:
        return
    if not isinstance(finding, Finding):
        fail(backend, f"{where} gave {type(finding).__name__}, wanted a Finding or None")
    if not finding.code or not isinstance(finding.verdict, Verdict):
        fail(backend, f"{where} gave {finding!r}, wanted a code and a Verdict")
    for side in ("wanted", "found"):
        text = getattr(finding, side)
        if not isinstance(text, str) or not text.strip():
            fail(backend, f"{where}: its finding's {side} is {text!r}, wanted a few words")
    for more in ("source", "fix"):
        if not isinstance(getattr(finding, more), str):
            fail(backend, f"{where}: its finding's {more} must be text, empty where there is none")


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)
