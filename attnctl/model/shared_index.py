"""Sparse latent attention in which some layers reuse the selection of an earlier indexer."""

from __future__ import annotations

import msgspec

from attnctl.model.attention import depth_of
from attnctl.model.groups import assemble
from attnctl.model.keys import Keys, Value
from attnctl.model.mla import mla_of
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup

_MEANING = {"full": True, "F": True, "shared": False, "S": False}
_SINKS = ("hy_v4",)  # learned sinks in every layer, without a key that says so


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Layers that run the indexer, and layers that take what it picked last."""
    text = config.text
    layer = msgspec.structs.replace(mla_of(text), sinks=text.model_type in _SINKS)
    runs = _runs_indexer(text, depth_of(text).value)
    if layer.indexer is None:
        return assemble(["dense"] * len(runs.value), lambda _: [layer])
    reuses = msgspec.structs.replace(
        layer,
        indexer=msgspec.structs.replace(layer.indexer, layers=()),
        notes={**layer.notes, "selection": "reused from the last layer that runs the indexer"},
        sources={**layer.sources, "indexer": runs.source},
    )
    return assemble(runs.value, lambda own: [layer if own else reuses])


def _runs_indexer(text: Keys, depth: int) -> Value[list[bool]]:
    """For each layer, whether it runs the indexer itself."""
    for key in ("indexer_types", "index_topk_pattern"):
        given = text.raw(key)
        if given is None:
            continue
        if not isinstance(given.value, str | list) or len(given.value) < depth:
            raise text.wrong(given, f'"full" or "shared" (F, S) for each of {depth} layers')
        return Value([_meaning(text, entry, given) for entry in given.value[:depth]], given.source)
    if text.model_type == "hy_v4":
        return Value([i == 0 or (i - 1) % 4 == 0 for i in range(depth)], "pattern of hy_v4")
    every = text.count("index_topk_freq") or Value(1, "every layer")
    skip = text.whole("index_skip_topk_offset")
    offset = skip.value if skip is not None else 2
    return Value([max(i - offset + 1, 0) % every.value == 0 for i in range(depth)], every.source)


def _meaning(text: Keys, entry: object, given: Value[object]) -> bool:
    if not isinstance(entry, str) or entry not in _MEANING:
        raise text.wrong(Value(entry, given.source), '"full" or "shared" (F, S)')
    return _MEANING[entry]
