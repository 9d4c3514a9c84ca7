"""Sliding windows: the number, whether it is switched on, and the layers that it holds for."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.model.attention import max_position_of
from attnctl.model.keys import Keys, Value
from attnctl.model.spec import LayerGroup

WINDOW = (
    "sliding_window",
    "sliding_window_size",
    "attention_window_size",
    "attn_window_size",
    "local_attention_window",
)


def window_of(text: Keys, *names: str) -> Value[int] | None:
    """The window that the file states, switched on or not; null, 0 and -1 mean none.

    A list with one entry per layer gives the width of its sliding layers.
    """
    for name in names or WINDOW:
        given = text.raw(name)
        if given is None or _is_none(given.value):
            continue
        if isinstance(given.value, list):
            widths = dict.fromkeys(filter(None, _widths(text, name)))
            if len(widths) > 1:
                raise text.wrong(given, "one width for all of its sliding layers")
            if not widths:
                continue
            return Value(next(iter(widths)), given.source)
        number = text.count(name)
        if number is not None:
            return number
    return None


def per_layer(text: Keys, depth: int) -> Value[list[int]] | None:
    """The width of each layer's window, 0 for none, where the file lists them.

    A list that goes into the depth repeats down the layers, as in Mistral's params.json.
    """
    for name in WINDOW:
        given = text.raw(name)
        if given is not None and isinstance(given.value, list) and given.value:
            if depth % len(given.value):
                wanted = f"a width, or one entry for each of {depth} layers or of a part of them,"
                raise text.wrong(given, wanted)
            return Value(_widths(text, name) * (depth // len(given.value)), given.source)
    return None


def _widths(text: Keys, name: str) -> list[int]:
    given = text.items(name)
    entries = text.each(given) if given else ()
    return [0 if _is_none(e.value) else text.whole_of(e) for e in entries]


def _is_none(value: object) -> bool:
    return value is None or value is False or value == -1


def window_or_default(text: Keys) -> Value[int] | None:
    """The window of layers that are known to slide: stated, or what the class assumes."""
    given = window_of(text)
    if given is not None or text.has(*WINDOW):
        return given
    assumed = text.default(*WINDOW)
    return assumed if assumed is not None and isinstance(assumed.value, int) else None


def is_switched_off(text: Keys, gated: bool) -> bool:
    """True where `use_sliding_window` is false, or absent in a family that needs it to be true."""
    switch = text.flag("use_sliding_window", "use_swa")
    return not switch.value if switch is not None else gated


def slid(full: LayerGroup, window: Value[int] | None, text: Keys) -> LayerGroup:
    """The full-attention layer with a window, unless the window is longer than any context."""
    if window is None:
        return full
    longest = max_position_of(text)
    notes: dict[str, Any] = dict(full.notes)
    if longest is not None and window.value > longest.value:
        notes["declared_window"] = window.value
        text.note(
            f"{window.source} {window.value} is longer than {longest.source} {longest.value}: "
            "it never binds"
        )
        return msgspec.structs.replace(full, notes=notes)
    if longest is not None and window.value == longest.value:
        notes["declared_window_never_binds_at_max_position"] = True
    return msgspec.structs.replace(
        full,
        kind="sliding",
        window=window.value,
        notes=notes,
        sources={**full.sources, "window": window.source},
    )


def two_sided(full: LayerGroup, window: Value[int]) -> LayerGroup:
    """The bidirectional layer with a window whose stated width counts both sides."""
    half = window.value // 2
    semantics = f"declared total; transformers halves it to {half + 1} exclusive"
    return msgspec.structs.replace(
        full,
        window=window.value,
        window_right=half,
        notes={**full.notes, "window_semantics": semantics},
        sources={**full.sources, "window": window.source},
    )


def chunked(full: LayerGroup, text: Keys) -> LayerGroup:
    """The layer confined to fixed chunks; both `window` and `chunk` give the chunk's width."""
    chunk = text.count_or_default("attention_chunk_size")
    if chunk is None:
        raise text.missing("chunk width", "attention_chunk_size")
    return msgspec.structs.replace(
        full,
        kind="chunked",
        window=chunk.value,
        chunk=chunk.value,
        sources={**full.sources, "chunk": chunk.source, "window": chunk.source},
    )
