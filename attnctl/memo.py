"""Asks a backend's rules, each once about the same machine or the same layer."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.findings import Finding, Verdict
from attnctl.layer import Layer, Options, layer_of
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.registry import Backend
from attnctl.requirements.rule import Rule, Subject


class Memo:
    """Findings that were already made, so that a sweep asks no rule twice about the same thing.

    Rules about the machine are asked once per machine and device, rules about the layer once per
    layer, and a group of layers under the same options is the same layer. Holds the values that it
    saw, so that an id is never reused.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, int], tuple[Finding, ...]] = {}
        self._kept: list[object] = []
        self._layers: dict[tuple[int, int, int], Layer] = {}
        self._split: dict[int, tuple[tuple[Rule, ...], tuple[Rule, ...], tuple[Rule, ...]]] = {}

    def layer(self, spec: ModelSpec, group: LayerGroup, options: Options) -> Layer:
        """What attnctl.layer.layer_of gives, made once."""
        key = (id(spec), id(group), id(options))
        layer = self._layers.get(key)
        if layer is None:
            self._kept += [spec, group, options]
            layer = self._layers[key] = layer_of(spec, group, options)
        return layer

    def findings(self, backend: Backend, subject: Subject) -> tuple[Finding, ...]:
        machine, layer, both = self._rules(backend)
        return (
            *self._cached(backend, subject.machine, subject.gpu, machine, subject),
            *self._cached(backend, subject.layer, None, layer, subject),
            *_ask(both, subject),
        )

    def _cached(
        self, backend: Backend, value: object, part: object, rules: Iterable[Rule], subject: Subject
    ) -> tuple[Finding, ...]:
        key = (id(backend), id(value), id(part))
        found = self._found.get(key)
        if found is None:
            self._kept += [backend, value, part]
            found = self._found[key] = _ask(rules, subject)
        return found

    def _rules(
        self, backend: Backend
    ) -> tuple[tuple[Rule, ...], tuple[Rule, ...], tuple[Rule, ...]]:
        split = self._split.get(id(backend))
        if split is None:
            self._kept.append(backend)
            parts = [
                tuple(rule for rule in backend.rules if rule.about == about)
                for about in ("machine", "layer", "both")
            ]
            split = self._split[id(backend)] = (parts[0], parts[1], parts[2])
        return split


def _ask(rules: Iterable[Rule], subject: Subject) -> tuple[Finding, ...]:
    return tuple(finding for rule in rules if (finding := _answer(rule, subject)) is not None)


def _answer(rule: Rule, subject: Subject) -> Finding | None:
    try:
        return rule.check(subject)
    except Exception as error:  # a plug-in's rule may raise anything: that is "could not tell"
        text = f"the rule raised {type(error).__name__}: {error}"
        return Finding(rule.code, Verdict.UNKNOWN, "a rule that answers", text)
