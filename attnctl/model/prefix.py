"""Models whose prompt holds spans (pictures) inside which tokens attend in both directions."""

from __future__ import annotations

import msgspec

from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

_TYPES = frozenset({"bagel", "gemma3", "molmo2", "paligemma"})  # vLLM's list
_CAUSAL = ("full", "sliding")


def with_prefixes(config: Config, groups: tuple[LayerGroup, ...]) -> tuple[LayerGroup, ...]:
    """The same groups, their causal attention marked where such spans occur."""
    if not _has_spans(config):
        return groups
    return tuple(
        msgspec.structs.replace(g, prefix_lm=True) if g.kind in _CAUSAL else g for g in groups
    )


def _has_spans(config: Config) -> bool:
    """True for the listed wrappers, and where the text model's flag says "vision"."""
    if config.text is config.root:
        return False
    flag = config.text.raw("use_bidirectional_attention")
    return config.root.model_type in _TYPES or (flag is not None and flag.value == "vision")
