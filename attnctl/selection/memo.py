"""Asks a backend's rules, each once about the same machine, the same layer, or the same pair."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from attnctl.findings import Finding, Verdict
from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import Backend
from attnctl.requirements.rule import Rule, Subject


class Answers(msgspec.Struct, frozen=True, gc=False):
    """The findings of some rules; met: every one of them is."""

    findings: tuple[Finding, ...]
    met: bool


class _Rules(msgspec.Struct, frozen=True):
    """A backend's rules by what they look at."""

    machine: tuple[Rule, ...]
    layer: tuple[Rule, ...]
    both: tuple[Rule, ...]


class Memo:
    """Findings that were already made, so that a sweep asks no rule twice about the same thing.

    Rules about the machine are asked once per backend, machine and device, rules about the layer
    once per backend and layer, and rules about both once per pair, for all backends that share the
    rule. A group of layers under the same options is the same layer. Holds the values that it saw,
    so that an id is never reused.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int], Answers] = {}
        self._kept: list[object] = []
        self._layers: dict[tuple[int, int, Options], Layer] = {}
        self._rules: dict[int, _Rules] = {}
        self._subject: Subject | None = None
        self._shared: dict[int, Finding | None] = {}

    def layer(self, spec: ModelSpec, group: LayerGroup, options: Options) -> Layer:
        """What attnctl.layer.layer_of gives, made once."""
        key = (id(spec), id(group), options)
        layer = self._layers.get(key)
        if layer is None:
            self._kept += [spec, group]
            layer = self._layers[key] = layer_of(spec, group, options)
        return layer

    def findings(self, backend: Backend, subject: Subject) -> Answers:
        """Every finding of a backend's rules: on the machine, then the layer, then the pair."""
        rules = self._rules.get(id(backend)) or self._sorted(backend)
        machine = self._cached(backend, subject.machine, subject.gpu, rules.machine, subject)
        layer = self._cached(backend, subject.layer, None, rules.layer, subject)
        both = self._pair(rules.both, subject)
        findings = (*machine.findings, *layer.findings, *both)
        return Answers(findings, machine.met and layer.met and _all_met(both))

    def _cached(
        self, backend: Backend, value: object, part: object, rules: Iterable[Rule], subject: Subject
    ) -> Answers:
        key = (id(backend), id(value), id(part))
        found = self._found.get(key)
        if found is None:
            self._kept += [backend, value, part]
            findings = tuple(f for rule in rules if (f := answer_of(rule, subject)) is not None)
            found = self._found[key] = Answers(findings, _all_met(findings))
        return found

    def _pair(self, rules: Iterable[Rule], subject: Subject) -> list[Finding]:
        if subject is not self._subject:
            self._subject = subject
            self._shared = {}
        shared, findings = self._shared, []
        for rule in rules:
            key = id(rule)
            if key in shared:
                finding = shared[key]
            else:
                finding = shared[key] = answer_of(rule, subject)
            if finding is not None:
                findings.append(finding)
        return findings

    def _sorted(self, backend: Backend) -> _Rules:
        self._kept.append(backend)
        parts = [
            tuple(rule for rule in backend.rules if rule.about == about)
            for about in _Rules.__struct_fields__
        ]
        rules = self._rules[id(backend)] = _Rules(*parts)
        return rules


def _all_met(findings: Iterable[Finding]) -> bool:
    for finding in findings:  # noqa: SIM110 - all() over a generator costs twice as much
        if finding.verdict is not Verdict.MET:
            return False
    return True


def answer_of(rule: Rule, subject: Subject) -> Finding | None:
    """What a rule says; unknown where it raises."""
    try:
        return rule.check(subject)
    except Exception as error:  # a plug-in's rule may raise anything: that is "could not tell"
        text = f"the rule raised {type(error).__name__}: {error}"
        return Finding(rule.code, Verdict.UNKNOWN, "a rule that answers", text)
