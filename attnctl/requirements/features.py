"""Rules of features: what a layer may demand beyond plain causal attention."""

from __future__ import annotations

from attnctl.findings import Finding, met, unmet
from attnctl.layer import FEATURES, Layer
from attnctl.requirements.rule import Rule, Subject

_FIELD_OF_FEATURE = {
    "sliding_window": "window",
    "two_sided_window": "window",
    "chunked": "chunk",
    "sinks": "sinks",
    "softcap": "softcap",
    "alibi": "alibi",
    "prefix_lm": "prefix_lm",
}


def features(*has: str | Rule) -> list[Rule]:
    """One rule per feature that a layer may demand: the backend has these and no others.

    A name means always; a Rule whose code is a feature's name says under which condition. A layer
    that demands a feature of which nobody here has heard is refused by every backend.
    """
    names = {name for name in has if isinstance(name, str)}
    conditions = {rule.code: rule for rule in has if isinstance(rule, Rule)}
    unheard = sorted((names | set(conditions)) - set(FEATURES))
    if unheard:
        raise ValueError(f"no such feature: {', '.join(unheard)}; see attnctl.layer.FEATURES")
    known = [conditions.get(name) or _feature(name, name in names) for name in FEATURES]
    return [*known, _unheard()]


def _feature(name: str, has: bool) -> Rule:
    found = "in its kernels" if has else "not in its kernels"

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if name not in layer.features:
            return None
        return (met if has else unmet)(name, demand(name, layer), found, source_of(name, layer))

    return Rule(name, "layer", check, wanted="yes" if has else "no")


def _unheard() -> Rule:
    def check(subject: Subject) -> Finding | None:
        unheard = [name for name in subject.layer.features if name not in FEATURES]
        if not unheard:
            return None
        return unmet("feature", ", ".join(unheard), "no kernel here has heard of it", "the layer")

    return Rule("feature", "layer", check)


def demand(name: str, layer: Layer) -> str:
    """Return the feature in words, with the layer's figure where it has one."""
    group = layer.group
    amount = {
        "sliding_window": group.window,
        "two_sided_window": group.window,
        "chunked": group.chunk,
        "softcap": group.softcap,
    }.get(name)
    return FEATURES[name] if amount is None else f"{FEATURES[name]} ({amount})"


def source_of(name: str, layer: Layer) -> str:
    """Return where the layer's demand for this feature was read."""
    return layer.source(_FIELD_OF_FEATURE.get(name, "kind"))
