"""Rules that look at the layer alone: its operation, dtypes, widths and block size."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attnctl.findings import Finding, met, unmet
from attnctl.layer import Layer
from attnctl.requirements.rule import Rule, Subject
from attnctl.requirements.words import any_of, in_range

HALF = ("float16", "bfloat16")
ANY_FLOAT = ("float16", "bfloat16", "float32")

PLAIN_KV = ("auto", "float16", "bfloat16")
"""Caches as the model computes; the two names also mean the model's dtype."""


def operation(*ops: str) -> Rule:
    """The operation that the layer needs is one of these; the reason says what it is instead."""
    wanted = any_of(ops)

    def check(subject: Subject) -> Finding:
        op = subject.layer.op
        found = "a layer that no operation here computes" if op is None else op
        source = f"layer kind {subject.layer.group.kind}"
        return (met if op in ops else unmet)("operation", wanted, found, source)

    return Rule("operation", "layer", check, wanted=wanted)


def compute_dtypes(*dtypes: str) -> Rule:
    """Queries, keys and values are in one of these dtypes."""
    wanted = any_of(dtypes)

    def check(subject: Subject) -> Finding:
        layer = subject.layer
        if layer.dtype in dtypes:
            return met("dtype", wanted, layer.dtype, layer.dtype_source)
        fix = f"--dtype {'bfloat16' if 'bfloat16' in dtypes else dtypes[0]}"
        return unmet("dtype", wanted, layer.dtype, layer.dtype_source, fix)

    return Rule("dtype", "layer", check, wanted=wanted)


def kv_cache_dtypes(*dtypes: str) -> Rule:
    """The KV cache is stored in one of these; states and cacheless layers raise no question."""
    wanted = any_of(dtypes)

    def check(subject: Subject) -> Finding | None:
        layer = subject.layer
        if not layer.group.needs_kv_cache:
            return None
        found, source = layer.kv_cache_dtype, layer.kv_cache_dtype_source
        if found in dtypes:
            return met("kv_cache_dtype", wanted, found, source)
        return unmet("kv_cache_dtype", wanted, found, source, cache_fix(layer, dtypes))

    return Rule("kv_cache_dtype", "layer", check, wanted=wanted)


def cache_fix(layer: Layer, dtypes: tuple[str, ...] = PLAIN_KV) -> str:
    """Return the option that gives this layer a cache in one of these dtypes.

    "auto" leaves a checkpoint's own cache dtype in force, so it helps only where that is accepted.
    """
    if layer.auto_kv_cache_dtype in dtypes:
        return "--kv-cache-dtype auto"
    plain = layer.dtype if layer.dtype in dtypes else "bfloat16"
    return f"--kv-cache-dtype {plain}"


def head_sizes(
    *sizes: int, multiple_of: int = 1, at_least: int = 1, at_most: int | None = None
) -> Rule:
    """The head size is one of `sizes`, or in a range and a multiple of a number."""
    wanted = any_of(sizes) if sizes else in_range(multiple_of, at_least, at_most)

    def accepts(size: int) -> bool:
        if sizes:
            return size in sizes
        inside = size >= at_least and (at_most is None or size <= at_most)
        return inside and size % multiple_of == 0

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
        good = all(accepts(width) for width in widths)
        return (met if good else unmet)("head_size", wanted, found, source)

    return Rule("head_size", "layer", check, wanted=wanted)


def block_size(*sizes: int, multiple_of: int | None = None) -> Rule:
    """A block size that the user fixed splits into kernel blocks of these sizes."""
    units = (multiple_of,) if multiple_of else sizes
    wanted = "any" if units == (1,) else f"a multiple of {any_of(units)}"

    def check(subject: Subject) -> Finding | None:
        size = subject.layer.block_size
        if size is None or not subject.layer.group.needs_kv_cache:
            return None
        if any(size % unit == 0 for unit in units):
            return met("block_size", wanted, str(size), "--block-size")
        fix = f"--block-size {min(units)}, or leave --block-size out"
        return unmet("block_size", wanted, str(size), "--block-size", fix)

    return Rule("block_size", "layer", check, wanted=wanted)


def whole_chunks(
    multiple: int = 16,
    on: Mapping[str, int] | None = None,
    asked: Callable[[Subject], int | None] | None = None,
) -> Rule:
    """A chunk is a whole number of cache blocks, for kernels that take each as a sequence.

    multiple, on, asked: the backend's block_multiple, block_multiple_on and block_multiple_for,
    tokens of a block where the user fixed no size.
    """
    wanted = "chunks of whole cache blocks"

    def check(subject: Subject) -> Finding | None:
        chunk = subject.layer.group.chunk
        if chunk is None:
            return None
        usual = asked(subject) if asked else None
        usual = usual or (on or {}).get(subject.platform, multiple)
        size = subject.layer.block_size or usual
        found = f"chunks of {chunk} tokens in blocks of {size}"
        if chunk % size == 0:
            return met("chunk", wanted, found, subject.layer.source("chunk"))
        fix = "" if chunk % usual else "a --block-size that divides the chunk"
        return unmet("chunk", wanted, found, subject.layer.source("chunk"), fix)

    return Rule("chunk", "both", check, wanted=wanted)


def one_stack() -> Rule:
    """The model is not an encoder-decoder; the decoder's own layers count as one."""
    wanted = "a model of one stack"

    def check(subject: Subject) -> Finding | None:
        if subject.layer.group.stack is None:
            return None
        found = f"the {subject.layer.group.stack} of an encoder-decoder model"
        return unmet("encoder_decoder", wanted, found, subject.layer.source("stack"))

    return Rule("encoder_decoder", "layer", check, wanted=wanted)


def conv_width(at_most: int) -> Rule:
    """The causal convolution before the recurrence is no wider than this."""
    wanted = f"a convolution of at most {at_most} taps"

    def check(subject: Subject) -> Finding | None:
        state = subject.layer.group.state
        if state is None or state.conv_kernel is None:
            return None
        good = state.conv_kernel <= at_most
        source = subject.layer.source("state")
        return (met if good else unmet)("conv_width", wanted, str(state.conv_kernel), source)

    return Rule("conv_width", "layer", check, wanted=wanted)


def key_width(at_most: int) -> Rule:
    """The key width of a gated delta rule is no more than this: a state's rows stay on chip."""
    wanted = f"a key width of at most {at_most}"

    def check(subject: Subject) -> Finding | None:
        state = subject.layer.group.state
        width = None if state is None else state.head_k_dim or state.head_dim
        if width is None:
            return None
        source = subject.layer.source("state")
        return (met if width <= at_most else unmet)("key_width", wanted, str(width), source)

    return Rule("key_width", "layer", check, wanted=wanted)
