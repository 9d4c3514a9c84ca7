"""Decoders that see their prompt both ways and generate causally (PaliGemma)."""

from __future__ import annotations

import msgspec

from attnctl.model import decoder
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def read(config: Config) -> tuple[LayerGroup, ...]:
    """The text model's groups, causal with a cache; `use_bidirectional_attention` is the prefix."""
    return tuple(causal(group) for group in decoder.read(config))


def causal(group: LayerGroup) -> LayerGroup:
    if group.kind != "encoder_self":
        return msgspec.structs.replace(group, prefix_lm=True)
    kind = "full" if group.window is None else "sliding"
    return msgspec.structs.replace(group, kind=kind, window_right=None, prefix_lm=True)
