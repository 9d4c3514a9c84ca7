"""Speculators that are heads on a model's last hidden state: no attention, and nothing kept."""

from __future__ import annotations

from attnctl.model.keys import LAYER_LIMIT
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

# one head for each token that is guessed
NAMES = ("medusa_num_heads", "num_heads", "n_predict", "num_lookahead_tokens")


def read(config: Config) -> tuple[LayerGroup, ...]:
    """A layer of no kind for each head; one where the file names no number of them."""
    found = config.text.count(*NAMES, limit=LAYER_LIMIT)
    count = found.value if found else 1
    sources = {"layers": found.source} if found else {}
    return (LayerGroup(kind="none", layers=tuple(range(count)), sources=sources),)
