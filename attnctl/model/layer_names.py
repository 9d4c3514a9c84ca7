"""The names that configs give to kinds of layers, and the lists that hold them."""

from __future__ import annotations

from typing import Any

from attnctl.model.keys import LAYER_LIMIT, Keys, Value

# canonical name -> spellings seen in configs
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "full": (
        "full_attention", "attention", "full", "global", "global_attention", "attn", "softmax",
        "self_attention", "full_attn", "dense_attention", "a", "f", "g", "*",
    ),
    "sliding": (
        "sliding_attention", "sliding", "local", "local_attention", "swa", "sliding_window",
        "sliding_window_attention", "window_attention", "l",
    ),
    "chunked": ("chunked_attention", "chunked"),
    "linear": ("linear_attention", "linear", "lightning", "lightning_attention", "linear_attn"),
    "gdn": ("gated_deltanet", "gated_delta_net", "gdn"),
    "kda": ("kda", "kimi_delta_attention"),
    "mamba": ("mamba", "ssm", "m"),
    "mamba2": ("mamba2",),
    "short_conv": ("conv", "short_conv", "shortconv"),
    "none": ("mlp", "moe", "none", "no_op", "identity", "ffn", "-", "e"),
    "hybrid": ("hybrid", "h"),
    "hybrid_sliding": ("hybrid_sliding",),
    "recurrent": ("recurrent", "rglru", "r"),
    "indexed": (
        "indexed_attention", "deepseek_sparse_attention", "qwen_sparse_attention",
        "minimax_m3_sparse", "sparse_attention",
    ),
    "compressed": ("compressed_sparse_attention",),
    "heavily_compressed": ("heavily_compressed_attention",),
    "cross": ("cross_attention", "cross"),
    "reference_sliding": ("reference_sliding_attention",),
}  # fmt: skip
_CANONICAL = {word: name for name, words in _SPELLINGS.items() for word in words}

NAME_LISTS = ("layer_types", "layers_block_type", "layer_type")
LETTER_KEYS = ("hybrid_override_pattern", "layer_pattern")


def names_in_file(text: Keys, depth: int | None) -> Value[list[str]] | None:
    """One canonical name per layer where the file lists names or letters; None where it does not.

    A list of names may run past `depth` (prediction layers: cut, with a note). A string of
    letters, one per layer, may be spelled as a list too.
    """
    for key in (*NAME_LISTS, *LETTER_KEYS):
        given = text.raw(key)
        if given is None:
            continue
        if not isinstance(given.value, list | str if key in LETTER_KEYS else list):
            raise text.wrong(given, "a list of layer kinds")
        names = [canonical(text, entry) for entry in _entries(text, given)]
        if names:
            return Value(fitted(text, Value(names, given.source), depth), given.source)
    return None


def canonical(text: Keys, entry: Value[Any]) -> str:
    if not isinstance(entry.value, str):
        raise text.wrong(entry, "the name of a layer kind")
    found = _CANONICAL.get(entry.value.lower())
    if found is None:
        raise text.wrong(entry, "a layer kind known here (full_attention, sliding_attention, ...)")
    return found


def fitted(text: Keys, names: Value[list[str]], depth: int | None) -> list[str]:
    """The list cut to the model's depth; an error where it is too short."""
    if len(names.value) > LAYER_LIMIT:
        raise text.wrong(names, f"a list of at most {LAYER_LIMIT} layers")
    if depth is None or len(names.value) == depth:
        return names.value
    if len(names.value) < depth:
        raise text.wrong(names, f"one entry for each of {depth} layers")
    extra = len(names.value) - depth
    text.note(f"{names.source} has {extra} more than {depth} layers: prediction layers, left out")
    return names.value[:depth]


def repeated(text: Keys, key: str, depth: int) -> Value[list[str]] | None:
    """A short list or string of kinds that repeats down the layers ("LLLG")."""
    given = text.raw(key)
    if given is None or not isinstance(given.value, str | list) or not given.value:
        return None
    cycle = [canonical(text, entry) for entry in _entries(text, given)]
    return Value([cycle[i % len(cycle)] for i in range(depth)], given.source)


def masked(text: Keys, key: str, depth: int | None, one: str, zero: str) -> Value[list[str]] | None:
    """A list of ones and zeros, one per layer; which of the two means what is the family's."""
    given = text.wholes(key)
    if given is None or not given.value:
        return None
    names = Value([one if entry else zero for entry in given.value], given.source)
    return Value(fitted(text, names, depth), given.source)


def _entries(text: Keys, given: Value[Any]) -> list[Value[Any]]:
    if not isinstance(given.value, str):
        return list(text.each(given))
    letters = [letter for letter in given.value if letter != "|"]
    if any(letter.lower() not in _CANONICAL for letter in letters):
        raise text.wrong(given, "a list of layer kinds, or a string of letters that each mean one")
    return [Value(letter, given.source) for letter in letters]
