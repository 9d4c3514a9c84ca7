"""DeepSeek V4: one shared latent as K and V, a window, and two rates of compressed context."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.attention import depth_of, head_size_of, heads_of
from attnctl.model.groups import assemble
from attnctl.model.keys import LAYER_LIMIT, Keys, Value, sources
from attnctl.model.mla import indexer_of
from attnctl.model.nesting import Config
from attnctl.model.spec import LayerGroup
from attnctl.model.windows import window_or_default

_RATIO_OF_NAME = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
_SPARSE_RATIO = 4  # the rate whose entries an indexer picks from; 0 is the window alone


def read(config: Config) -> tuple[LayerGroup, ...]:
    """Sliding layers, sparse ones (rate 4, with an indexer) and compressed ones (rate 128).

    The file has no kv_lora_rank: the cached row is head_dim wide, K equals V, and every layer has
    learned sinks and the window beside what it compresses.
    """
    text = config.text
    base = _layer(text)
    ratios = _ratios(text, depth_of(text).value)
    return assemble(ratios, lambda ratio: [_of_ratio(base, ratio, text)])


def _layer(text: Keys) -> LayerGroup:
    heads = heads_of(text)
    size = head_size_of(text, heads)
    kv_heads = text.count_or_default("num_key_value_heads") or Value(1, "one latent per token")
    window = window_or_default(text)
    return LayerGroup(
        kind="sliding",
        layers=(),
        head_size=size.value,
        num_heads=heads.value,
        num_kv_heads=kv_heads.value,
        window=window.value if window else None,
        sinks=True,
        notes={"k_equals_v": True},
        sources={
            **sources(head_size=size, num_heads=heads, num_kv_heads=kv_heads, window=window),
            "sinks": "every layer of deepseek_v4 has them",
        },
    )


def _of_ratio(base: LayerGroup, ratio: Value[int], text: Keys) -> LayerGroup:
    notes: dict[str, Any] = {"compress_ratio": ratio.value, **base.notes}
    paths = {**base.sources, "kind": ratio.source}
    if ratio.value == 0:
        return msgspec.structs.replace(base, notes=notes, sources=paths)
    if ratio.value != _SPARSE_RATIO:
        return msgspec.structs.replace(base, kind="mla", notes=notes, sources=paths)
    index = indexer_of(text)
    return msgspec.structs.replace(
        base,
        kind="mla_sparse",
        notes=notes,
        indexer=index.value if index else None,
        sources={**paths, **sources(indexer=index)},
    )


def _ratios(text: Keys, depth: int) -> list[Value[int]]:
    """One rate per layer; entries beyond the depth belong to prediction layers."""
    given = text.wholes("compress_ratios")
    if given is not None and given.value:
        return _fitted(text, [Value(r, given.source) for r in given.value], depth)
    named = text.items("layer_types")
    if named is not None and named.value:
        return _fitted(text, [_named(text, e, named.source) for e in text.each(named)], depth)
    pattern = "pattern of deepseek_v4"
    return [Value(128 if i < 2 or i % 2 == 0 else 4, pattern) for i in range(depth)]


def _named(text: Keys, entry: Value[Any], source: str) -> Value[int]:
    if not isinstance(entry.value, str) or entry.value not in _RATIO_OF_NAME:
        raise text.wrong(entry, f"one of {', '.join(_RATIO_OF_NAME)}")
    return Value(_RATIO_OF_NAME[entry.value], source)


def _fitted(text: Keys, ratios: list[Value[int]], depth: int) -> list[Value[int]]:
    if not depth <= len(ratios) <= LAYER_LIMIT:
        raise text.wrong(Value(ratios, ratios[0].source), f"one entry for each of {depth} layers")
    if len(ratios) > depth:
        text.note(f"{ratios[0].source} has {len(ratios)} entries for {depth} layers: the rest are "
                  "prediction layers, left out")  # fmt: skip
    return ratios[:depth]
