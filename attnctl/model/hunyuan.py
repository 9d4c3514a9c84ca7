"""Hunyuan: neighbouring layers may share one KV cache (cross-layer attention)."""

from __future__ import annotations

from attnctl.model import decoder, plan
from attnctl.model.keys import Keys
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import PLAIN


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full attention; with use_cla each group of cla_share_factor layers keeps one cache."""
    text = config.text
    names = plan.layer_names(text, PLAIN)
    factor = _share_factor(text)
    shared = {i: i - i % factor for i in range(len(names.value)) if i % factor}
    return decoder.build(text, names, PLAIN, shared=shared)


def _share_factor(text: Keys) -> int:
    """How many layers one cache serves; the factor counts for nothing without use_cla."""
    if not text.is_true("use_cla"):
        return 1
    factor = text.count("cla_share_factor")
    return factor.value if factor is not None else 1
