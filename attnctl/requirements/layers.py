"""Rules that look at the layer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attnctl.findings import Finding, met, unmet
from attnctl.layer import FEATURES, Layer
from attnctl.requirements.rule import Rule, Subject

HALF = ("float16", "bfloat16")


def operation(*ops: str) -> Rule:
    """The operation that the layer needs is one of these; the reason says what it is instead."""
    wanted = _any_of(ops)

    def check(subject: Subject) -> Finding:
        op = subject.layer.op
        found = "a layer that no operation here computes" if op is None else op
        source = f"layer kind {subject.layer.group.kind}"
        if op in ops:
            return met("operation", wanted, found, source)
        return unmet("operation", wanted, found, source)

    return Rule("operation", "layer", check)


def compute_dtypes(*dtypes: str) -> Rule:
    """Queries, keys and values are in one of these dtypes."""
    wanted = _any_of(dtypes)

    def check(subject: Subject) -> Finding:
        layer = subject.layer
        if layer.dtype in dtypes:
            return met("dtype", wanted, layer.dtype, layer.dtype_source)
        fix = f"--dtype {dtypes[-1]}"
        return unmet("dtype", wanted, layer.dtype, layer.dtype_source, fix)

    return Rule("dtype", "layer", check)


def kv_cache_dtypes(*dtypes: str) -> Rule:
    """The KV cache is stored in one of these; float16 and bfloat16 also mean the model's dtype."""
    wanted = _any_of(dtypes)

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if not (layer.group.needs_kv_cache or layer.group.is_ssm):
            return None
        found, source = layer.kv_cache_dtype, layer.kv_cache_dtype_source
        if found in dtypes or layer.group.is_ssm:
            return met("kv_cache_dtype", wanted, found, source)
        return unmet("kv_cache_dtype", wanted, found, source, f"--kv-cache-dtype {dtypes[0]}")

    return Rule("kv_cache_dtype", "layer", check)


def head_sizes(
    *sizes: int, multiple_of: int = 1, at_least: int = 1, at_most: int | None = None
) -> Rule:
    """The head size is one of `sizes`, or in a range and a multiple of a number."""
    wanted = _any_of(sizes) if sizes else _range(multiple_of, at_least, at_most)

    def accepts(size: int) -> bool:
        if sizes:
            return size in sizes
        in_range = size >= at_least and (at_most is None or size <= at_most)
        return in_range and size % multiple_of == 0

    return head_size_rule(wanted, accepts)


def head_size_rule(wanted: str, accepts: Callable[[int], bool]) -> Rule:
    """The K width, and the V width where it differs, pass `accepts`."""

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if layer.head_size is None:
            return None
        widths = {layer.head_size}
        if layer.op == "diffkv" and layer.head_size_v is not None:
            widths.add(layer.head_size_v)
        found = " and ".join(str(width) for width in sorted(widths, reverse=True))
        source = layer.source("head_size")
        if all(accepts(width) for width in widths):
            return met("head_size", wanted, found, source)
        return unmet("head_size", wanted, found, source)

    return Rule("head_size", "layer", check)


def block_size(*sizes: int, multiple_of: int | None = None) -> Rule:
    """A block size that the user fixed splits into kernel blocks of these sizes."""
    wanted = f"a multiple of {multiple_of or _any_of(sizes)}"
    units = (multiple_of,) if multiple_of else sizes

    def check(subject: Subject) -> Finding | None:
        size = subject.layer.block_size
        if size is None or not subject.layer.group.needs_kv_cache:
            return None
        if any(size % unit == 0 for unit in units):
            return met("block_size", wanted, str(size), "--block-size")
        fix = f"--block-size {min(units)}, or leave --block-size out"
        return unmet("block_size", wanted, str(size), "--block-size", fix)

    return Rule("block_size", "layer", check)


def features(*has: str) -> Iterable[Rule]:
    """One rule per feature that a layer may demand: the backend has these and no others."""
    unheard = [name for name in has if name not in FEATURES]
    if unheard:
        raise ValueError(f"no such feature: {', '.join(unheard)}; see attnctl.layer.FEATURES")
    return [_feature(name, name in has) for name in FEATURES]


def _feature(name: str, has: bool) -> Rule:
    meaning = FEATURES[name]
    found = f"kernels {'with' if has else 'without'} {meaning}"

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if name not in layer.features:
            return None
        source = layer.source(_FIELD_OF_FEATURE.get(name, "kind"))
        return (met if has else unmet)(name, _demand(name, layer), found, source)

    return Rule(name, "layer", check)


_FIELD_OF_FEATURE = {
    "sliding_window": "window",
    "two_sided_window": "window",
    "chunked": "chunk",
    "sinks": "sinks",
    "softcap": "softcap",
    "alibi": "alibi",
    "prefix_lm": "prefix_lm",
}


def _demand(name: str, layer: Layer) -> str:
    group = layer.group
    amount = {
        "sliding_window": group.window,
        "two_sided_window": group.window,
        "chunked": group.chunk,
        "softcap": group.softcap,
    }.get(name)
    return FEATURES[name] if amount is None else f"{FEATURES[name]} ({amount})"


def mla_dims(wanted: str, accepts: Callable[[int, int, int, int], bool]) -> Rule:
    """Latent-attention widths (kv_lora_rank, rope, nope, v) that the kernel was built for."""

    def check(subject: Subject) -> Finding | None:
        mla = subject.layer.group.mla
        if mla is None:
            return None
        widths = (mla.kv_lora_rank, mla.qk_rope_head_dim, mla.qk_nope_head_dim, mla.v_head_dim)
        found = "lora {}, rope {}, nope {}, v {}".format(*widths)
        source = subject.layer.source("mla")
        return (met if accepts(*widths) else unmet)("mla_dims", wanted, found, source)

    return Rule("mla_dims", "layer", check)


def topk(wanted: str, accepts: Callable[[int], bool]) -> Rule:
    """The number of tokens that the indexer picks is one that the sparse kernel takes."""

    def check(subject: Subject) -> Finding | None:
        indexer = subject.layer.group.indexer
        if indexer is None:
            return None
        source = subject.layer.source("indexer")
        finding = met if accepts(indexer.topk) else unmet
        return finding("index_topk", wanted, str(indexer.topk), source)

    return Rule("index_topk", "layer", check)


def _any_of(values: Iterable[object]) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _range(multiple_of: int, at_least: int, at_most: int | None) -> str:
    parts = [f"a multiple of {multiple_of}"] if multiple_of > 1 else []
    if at_least > 1:
        parts.append(f"at least {at_least}")
    if at_most is not None:
        parts.append(f"at most {at_most}")
    return ", ".join(parts) or "any"
