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
_BARE = ("mistral_large4_text",)  # every fourth layer, or those that no_rope_layers gives as 0
_SINKS = ("hy_v4",)  # learned sinks in every layer, without a key that says so


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Layers that run the indexer, and layers that take what it picked last."""
    text = config.text
    layer = msgspec.structs.replace(mla_of(text), sinks=text.model_type in _SINKS)
    runs = _runs_indexer(text, depth_of(text).value)
    if layer.indexer is None:
        return assemble(["dense"] * len(runs.value), lambda _: [layer])
    if text.model_type in _BARE:
        return _with_bare_layers(text, layer, runs)
    return assemble(runs.value, lambda own: [layer if own else _reusing(layer, runs)])


def _with_bare_layers(
    text: Keys, layer: LayerGroup, runs: Value[list[bool]]
) -> tuple[LayerGroup, ...]:
    """The same where some layers have no positions: their latent has no part for them."""
    positions = text.wholes("no_rope_layers")  # 1 = with positions, as in SmolLM3
    every = text.count("no_rope_layer_interval") or Value(4, "")
    turned = positions.value if positions else ()
    slots = [
        (own, bool(turned[i]) if i < len(turned) else (i + 1) % every.value != 0)
        for i, own in enumerate(runs.value)
    ]
    bare = _without_positions(layer)

    def made(slot: tuple[bool, bool]) -> list[LayerGroup]:
        own, turns = slot
        found = layer if turns else bare
        return [found if own else _reusing(found, runs)]

    return assemble(slots, made)


def _without_positions(layer: LayerGroup) -> LayerGroup:
    """All of K is content: the cached row is the latent alone."""
    mla = layer.mla
    if mla is None:
        return layer
    inner = msgspec.structs.replace(
        mla, qk_rope_head_dim=0, qk_nope_head_dim=mla.qk_nope_head_dim + mla.qk_rope_head_dim
    )
    sources = {**layer.sources, "head_size": layer.sources.get("head_size_v", "kv_lora_rank")}
    return msgspec.structs.replace(
        layer,
        mla=inner,
        head_size=mla.kv_lora_rank,
        notes={**layer.notes, "nope": True},
        sources=sources,
    )


def _reusing(layer: LayerGroup, runs: Value[list[bool]]) -> LayerGroup:
    """The layer without an indexer of its own."""
    if layer.indexer is None:
        return layer
    return msgspec.structs.replace(
        layer,
        indexer=msgspec.structs.replace(layer.indexer, layers=()),
        notes={**layer.notes, "selection": "reused from the last layer that runs the indexer"},
        sources={**layer.sources, "indexer": runs.source},
    )


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
        shown = given if isinstance(given.value, str) else Value(entry, given.source)
        raise text.wrong(shown, '"full" or "shared" (F, S)')
    return _MEANING[entry]
