"""Audio encoders that take sound as it comes in: windows that look back further than ahead."""

from __future__ import annotations

from attnctl.model.keys import Keys, Value
from attnctl.model.nesting import Config
from attnctl.model.shape import complete, group_of
from attnctl.model.spec import Kind, LayerGroup

Groups = tuple[LayerGroup, ...]
CODECS = frozenset({"mimi", "pocket_tts_audio_tokenizer"})


def read(config: Config) -> Groups:
    keys = config.text
    if keys.model_type == "moonshine_streaming_encoder":
        return moonshine(keys)
    if keys.model_type == "nemotron_asr_streaming_encoder":
        return conformer(keys)
    return codec(keys)


def codec(keys: Keys) -> Groups:
    """Causal layers with a window, whose cache lets sound be encoded as it comes in.

    A whole codec has such layers on its way in and again on its way out.
    """
    shape = complete(keys)
    window = keys.count_or_default("sliding_window")
    kind: Kind = "full" if window is None else "sliding"
    width = window.value if window else None
    ways = ("encoder", "decoder") if keys.model_type in CODECS else (None,)
    return tuple(
        group_of(shape, kind, window=width, notes={"part": way} if way else {}) for way in ways
    )


def moonshine(keys: Keys) -> Groups:
    """A window for each layer: so many frames back, so many ahead."""
    shape = complete(keys)
    pairs = keys.items("sliding_windows") or keys.default("sliding_windows")
    if pairs is None or len(pairs.value) < (shape.layers or 0):
        raise keys.missing("list of windows, one for each layer", "sliding_windows")
    members: dict[tuple[int, int], list[int]] = {}
    for layer, pair in enumerate(list(keys.each(pairs))[: shape.layers]):
        members.setdefault(two_counts(keys, pair), []).append(layer)
    return tuple(
        group_of(
            shape,
            layers=layers,
            window=left + right,
            window_right=right,
            notes={"window_sides": [left, right]},
        )
        for (left, right), layers in members.items()
    )


def two_counts(keys: Keys, pair: Value[object]) -> tuple[int, int]:
    value = pair.value
    if not isinstance(value, list) or len(value) != 2:
        raise keys.wrong(pair, "a pair of window sides")
    left, right = value
    if not (isinstance(left, int) and isinstance(right, int) and left > 0 and right >= 0):
        raise keys.wrong(pair, "a pair of window sides")
    return left, right


def conformer(keys: Keys) -> Groups:
    """Chunks that look back over a window and ahead inside their own chunk only."""
    shape = complete(keys)
    window = keys.count_or_default("sliding_window")
    notes = {} if window is None else {"left_context": window.value - 1}
    return (group_of(shape, notes=notes),)
