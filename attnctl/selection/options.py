"""Reads the options of a run as a user spells them into Options, or says what is wrong with one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import isnan, nan

import msgspec

from attnctl.exits import InputError
from attnctl.layer import BOUNDS, KV_DTYPES, OPS, Options, layer_of
from attnctl.model.spec import ModelSpec
from attnctl.nearest import did_you_mean
from attnctl.registry import Registry

# spelling -> dtype; "torch." in front does not count
DTYPES = {
    "auto": None,
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
}
_SHORT_KV_DTYPES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32"}
SAME = "same"
"""The block size that is one for all layers, whichever costs least."""
KINDS = (*OPS, "recurrent_other")
# what engines select a backend for; the kind of a state fixes its own
SELECTED_OPS = ("paged", "diffkv", "mla", "mla_sparse")


def read_options(
    registry: Registry,
    *,
    dtype: str | None = None,
    kv_cache_dtype: str = "auto",
    block_size: int | str | None = None,
    tp: int = 1,
    max_model_len: int | None = None,
    speculative_tokens: int = 0,
    cache_memory: str | None = None,
    backend: Iterable[str] = (),
    allow_fallback: bool = False,
    engine_backends: Collection[str] = (),
) -> Options:
    """The options in their canonical spelling; InputError names the option that makes no sense.

    block_size: tokens, or "same" for one size of all layers. backend: "NAME" for every kind of
    layer that the backend computes, or "KIND=NAME". engine_backends: names that the engine asked
    about has beside the registry's.
    """
    return Options(
        dtype=None if dtype is None else _dtype(dtype),
        kv_cache_dtype=_kv_cache_dtype(kv_cache_dtype),
        block_size=None if block_size in (None, SAME) else _tokens(block_size),
        one_block_size=block_size == SAME,
        tp=tp,
        max_model_len=max_model_len,
        speculative_tokens=speculative_tokens,
        cache_memory=None if cache_memory is None else _bytes("--cache-memory", cache_memory),
        backend=_demands(backend, registry, engine_backends),
        allow_fallback=allow_fallback,
    )


def scoped(options: Options, spec: ModelSpec, registry: Registry) -> Options:
    """The options with a demand for every kind narrowed to the kinds that the backend computes.

    A backend that computes none of the model's layers stays demanded of all of them: that is a
    demand unmet, never one forgotten. A backend that is an engine's alone is demanded of attention
    layers: no engine selects what keeps its states.
    """
    named = dict(options.backend)
    if "*" not in named:
        return options
    everywhere = registry.get(named["*"])
    computed = SELECTED_OPS if everywhere is None else everywhere.ops
    ops = {group.kind: layer_of(spec, group, options).op for group in spec.groups}
    served: dict[str, str] = {kind: named["*"] for kind, op in ops.items() if op in computed}
    if not served:
        return options
    del named["*"]
    return msgspec.structs.replace(options, backend=tuple({**served, **named}.items()))


def unheard(asked: Options, taken: Options, spec: ModelSpec) -> tuple[str, ...]:
    """One sentence for each demand that no layer of the model carries.

    asked: the options as they were given; taken: as `scoped` narrowed them to the model.
    """
    kinds = dict.fromkeys(group.kind for group in spec.groups if group.kind != "none")
    own = {kind for kind, _ in asked.backend if kind != "*"}
    sentences = []
    for kind, name in asked.backend:
        if kind != "*" and kind not in kinds:
            what = f"the model has no {kind} layers, only {', '.join(kinds) or 'none at all'}"
            sentences.append(f"--backend {kind}={name}: {what}")
        elif kind == "*" and not any(taken.requested(k) == name for k in kinds):
            left = "is left to it" if own & {*kinds} else "is there to be served"
            sentences.append(f"--backend {name}: no layer of the model {left}")
    return tuple(sentences)


def _tokens(word: int | str | None) -> int | None:
    if not isinstance(word, str):
        return word
    if not (word.isascii() and word.removeprefix("-").isdecimal()) or len(word) > 1000:
        raise InputError(f"--block-size {word}: give tokens as a whole number, or {SAME}")
    return int(word)


def backend_name(
    word: str, registry: Registry, option: str = "", others: Collection[str] = ()
) -> str:
    """The registry's spelling of a backend's name; InputError with the nearest one otherwise.

    option: where the word stands, for the message: "--backend". others: names beside the
    registry's that are taken as well.
    """
    known = {name: name for name in (*(one.name for one in registry.backends), *others)}
    said = f"{option} {word}".strip()
    name = word.strip().upper().replace("-", "_")
    if name in known:
        return known[name]
    for broken in registry.broken:
        if broken.name.upper() == name:
            raise InputError(f"{said}: declared by {broken.origin}, but broken: {broken.error}")
    hint = did_you_mean(name, known) or f" Known are {', '.join(sorted(known))}."
    raise InputError(f"{said}: no backend of that name.{hint}")


def _demands(
    words: Iterable[str], registry: Registry, others: Collection[str]
) -> tuple[tuple[str, str], ...]:
    demands: dict[str, str] = {}
    for word in words:
        kind, equals, name = word.rpartition("=")
        kind = _known("--backend", kind.strip(), KINDS, "kind of layer") if equals else "*"
        if kind in demands:
            where = "every kind of layer" if kind == "*" else f"{kind} layers"
            raise InputError(f"--backend: two backends are demanded for {where}; give one")
        demands[kind] = backend_name(name, registry, "--backend", others)
    return tuple(demands.items())


def _dtype(word: str) -> str | None:
    plain = word.lower().removeprefix("torch.")
    return DTYPES[_known("--dtype", plain, DTYPES, "dtype")]


def _kv_cache_dtype(word: str) -> str:
    plain = word.lower().removeprefix("torch.")
    plain = _SHORT_KV_DTYPES.get(plain, plain)
    return _known("--kv-cache-dtype", plain, KV_DTYPES, "KV-cache dtype")


def _known(option: str, word: str, known: Collection[str], what: str) -> str:
    if word in known:
        return word
    hint = did_you_mean(word, known) or f" Known are {', '.join(known)}."
    raise InputError(f"{option} {word}: no such {what}.{hint}")


def _bytes(option: str, text: str) -> int:
    """The bytes that "40GiB", "40G" or "42949672960" say: powers of 1024, as engines read them."""
    number = text.strip().lower()
    power = 0
    for place, unit in enumerate(("k", "m", "g", "t"), start=1):
        for end in (f"{unit}ib", f"{unit}b", unit):
            if number.endswith(end):
                number, power = number.removesuffix(end), place
                break
    try:
        count = float(number) * 1024**power
    except ValueError:
        count = nan
    if isnan(count):
        raise InputError(f"{option} {text!r}: not a size; give one, as 40GiB")
    if count < 1:
        raise InputError(f"{option} {text!r}: must be more than 0 bytes, as 40GiB")
    if count > BOUNDS["cache_memory"][1]:
        raise InputError(
            f"{option} {text!r}: more than any device has (1024TiB); is the unit right?"
        )
    return int(count)
