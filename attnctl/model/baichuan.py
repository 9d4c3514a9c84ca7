"""Baichuan: the 7B rotates, the 13B uses ALiBi; the file tells them apart by width alone."""

from __future__ import annotations

from attnctl.model import decoder
from attnctl.model.attention import HIDDEN
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.traits import Traits

_ROTARY_WIDTH = 4096  # hidden size of the 7B; vLLM draws the same line


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full attention, with ALiBi in every model that is not as wide as the 7B."""
    hidden = config.text.count(*HIDDEN)
    alibi = hidden is not None and hidden.value != _ROTARY_WIDTH
    return decoder.read(config, Traits(alibi=alibi))
