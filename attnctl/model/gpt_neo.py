"""GPT-Neo: global and local layers in a list, or in pairs of names and repeats."""

from __future__ import annotations

from typing import Any

from attnctl.model import windows
from attnctl.model.attention import attention_of, depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import LAYER_LIMIT, Keys, Value
from attnctl.model.layer_names import canonical, fitted
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Full and sliding layers; window_size is the window of the local ones."""
    text = config.text
    names = _names(text, depth_of(text).value)
    full = attention_of(text)
    window = text.count_or_default("window_size")
    local = windows.slid(full, window, text)
    return assemble(names, lambda name: [local if name == "sliding" else full])


def _names(text: Keys, depth: int) -> list[str]:
    listed = text.items("attention_layers")
    if listed is not None:
        names = [canonical(text, entry) for entry in text.each(listed)]
        return fitted(text, Value(names, listed.source), depth)
    pairs = text.items("attention_types")
    if pairs is None:
        return ["sliding" if i % 2 else "full" for i in range(depth)]
    names = [name for pair in text.each(pairs) for name in _repeated(text, pair)]
    return fitted(text, Value(names, pairs.source), depth)


def _repeated(text: Keys, pair: Value[Any]) -> list[str]:
    entry = pair.value
    shaped = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)
    times = entry[1] if shaped else None
    if isinstance(times, bool) or not isinstance(times, int) or not 0 <= times <= LAYER_LIMIT:
        raise text.wrong(pair, "a pair of a list of names and a number of repeats")
    if len(entry[0]) * times > LAYER_LIMIT:
        raise text.wrong(pair, f"what makes at most {LAYER_LIMIT} layers")
    return [canonical(text, Value(name, pair.source)) for name in entry[0]] * times
