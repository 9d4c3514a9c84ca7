"""Rules about on-chip memory: the smallest tile of a bundled kernel must fit."""

from __future__ import annotations

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.layer import Layer
from attnctl.requirements.rule import Rule, Subject

TILE = 16
"""Least rows of a query and of a KV tile: the smallest product of Triton's matrix units."""


def shared_memory() -> Rule:
    """The smallest tile of the kernel fits a block's shared memory.

    Queries [16, D], keys [16, D] and values [16, Dv] in the compute dtype, widths padded to powers
    of two as Triton's are. Latent attention keeps the row in two parts (lora and rope, each padded)
    and its values are a view of the keys, so they take nothing.
    """
    return _SHARED_MEMORY


def _check(subject: Subject) -> Finding | None:
    gpu, need = subject.gpu, smallest_tile_bytes(subject.layer)
    if gpu is None or need is None:
        return None
    least = f"{need} bytes per block for the smallest tile"
    source = subject.source("shared_memory_bytes")
    have = gpu.shared_memory_bytes
    if have is None:
        return unknown("shared_memory", least, "not known", source, "attnctl probe")
    if have < need:
        halves = subject.layer.dtype == "float32" and need // 2 <= have
        fix = "--dtype float16" if halves else ""
        return unmet("shared_memory", least, f"{have} bytes", source, fix)
    return met("shared_memory", least, f"{have} bytes", source)


# one object, so that every backend that asks shares the answer
_SHARED_MEMORY = Rule(
    "shared_memory", "both", _check, wanted="the smallest tile in a block's shared memory"
)


def smallest_tile_bytes(layer: Layer) -> int | None:
    """Return the bytes of the smallest query, key and value tiles; None without a head size."""
    head_size, head_size_v, mla = layer.head_size, layer.head_size_v, layer.group.mla
    if head_size is None:
        return None
    itemsize = 4 if layer.dtype == "float32" else 2
    if mla is not None:
        row = _padded(mla.kv_lora_rank) + _padded(mla.qk_rope_head_dim)
        return itemsize * TILE * 2 * row
    return itemsize * TILE * (2 * _padded(head_size) + _padded(head_size_v or head_size))


def _padded(width: int) -> int:
    return 1 << (width - 1).bit_length() if width > 0 else 0
