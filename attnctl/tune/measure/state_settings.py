"""The launches of the kernels of states that a tune tries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from attnctl.kernels.states.knobs import STEPS
from attnctl.tune.settings import Knobs, Limits, Setting, Work

SMALL = 64 << 10
"""Bytes of shared memory of AMD's blocks up to gfx942."""

TILES = (256, 512, 1024, 2048, 4096, 8192)
WARPS = (1, 2, 4, 8)
DECAYED = (
    *((64, 4, 2, 64), (32, 4, 2, 64), (128, 8, 2, 64), (64, 8, 2, 64), (64, 4, 3, 64)),
    *((64, 4, 1, 64), (32, 4, 3, 64), (128, 4, 2, 64), (32, 2, 2, 64), (64, 4, 2, 32)),
    *((64, 4, 2, 128), (32, 4, 2, 32), (32, 4, 2, 128), (128, 8, 1, 64), (16, 4, 2, 64)),
    *((64, 2, 2, 32), (32, 2, 3, 64), (128, 8, 2, 32), (64, 8, 1, 128), (16, 2, 3, 32)),
)
"""rows, warps, stages, chunk."""


def state_settings(
    op: str, work: Work, limits: Limits, rivals: Sequence[str] = ()
) -> tuple[Setting, ...]:
    """The default first, each once. Without shared memory the device is a processor."""
    if limits.shared_memory_bytes == 0:
        return (Setting(),)
    found = [Setting(), *(Setting(kernel=name) for name in rivals)]
    if work.query == 1:
        return (*found, *(Setting(knobs=knobs) for knobs in _steps()))
    for knobs in _LONG[op]():
        setting = Setting(knobs=knobs)
        if setting not in found and _loads(op, knobs, work, limits):
            found.append(setting)
    return (*found, *(Setting(knobs=knobs, kernel=STEPS) for knobs in _steps()))


def _loads(op: str, knobs: Knobs, work: Work, limits: Limits) -> bool:
    """Whether a block's shared memory holds what stages load ahead.

    Of widths of 128 the walk of gdn takes 68 KiB with 64 rows in three stages, 84 KiB with 128.
    """
    if op == "mamba2":
        return _mamba2_bytes(knobs, work, limits.arch) <= limits.shared_memory_bytes
    rows, stages = int(knobs.get("chunks.rows", 0)), int(knobs.get("chunks.stages", 1))
    return op != "gdn" or rows < 64 or stages < 3 or limits.shared_memory_bytes > SMALL


def _mamba2_bytes(knobs: Knobs, work: Work, arch: str) -> int:
    """What the walk takes of shared memory, at least; from what it compiled to for nine targets.

    B, C and x of a chunk for each stage; beside them, on NVIDIA, a copy of the rows of the state
    and the chunk's products, or the same products while they change their layout.
    """
    state = work.layer.group.state
    assert state is not None
    rows, chunk, stages = (int(knobs[f"chunks.{name}"]) for name in ("rows", "chunk", "stages"))
    width, rows = state.state_size or 128, min(rows, state.head_dim or rows)
    stages = 1 if width > 128 else stages  # wide states are walked so whatever the knob says
    loaded = 4 * chunk * width + 2 * chunk * rows
    if arch.startswith("gfx"):
        return (stages - 1) * loaded
    if stages == 1:
        return loaded + 2 * rows * width
    return (stages - 1) * loaded + max(2 * rows * width + 2 * chunk**2, 4 * chunk**2)


def _steps() -> Iterator[Knobs]:
    """Of the kernel that steps, whole: its usual tile is another in some operations."""
    for tile, warps in product(TILES, WARPS):
        if 256 <= tile // warps <= 4096:
            yield {"tile": tile, "warps": warps}


def _gdn() -> Iterator[Knobs]:
    for rows, warps, stages in product((16, 32, 64, 128), (2, 4, 8), (1, 2, 3)):
        if 4 <= rows // warps <= 32:
            yield {"chunks.rows": rows, "chunks.warps": warps, "chunks.stages": stages}
    for rows, warps, chunk in product((32, 64), (2, 4, 8), (32, 64)):
        yield {"chunks.rows": rows, "chunks.prepare_warps": warps, "chunks.chunk": chunk}


def _mamba1() -> Iterator[Knobs]:
    for tile, warps in product((512, 1024, 2048), (1, 2, 4)):
        for fill, least in ((16, 64), (8, 64), (32, 32), (4, 128), (16, 128)):
            yield {
                "chunks.tile": tile,
                "chunks.warps": warps,
                "chunks.fill": fill,
                "chunks.least": least,
            }


def _decayed() -> Iterator[Knobs]:
    for sizes in DECAYED:
        names = ("rows", "warps", "stages", "chunk")
        yield {f"chunks.{name}": size for name, size in zip(names, sizes, strict=True)}


def _short_conv() -> Iterator[Knobs]:
    for part, warps, tokens in product((128, 256, 512, 1024), (1, 2, 4, 8), (8, 16, 32, 64)):
        if 32 <= part // warps <= 256:
            yield {"chunks.part": part, "chunks.warps": warps, "chunks.tokens": tokens}


_LONG = {
    "gdn": _gdn,
    "mamba1": _mamba1,
    "mamba2": _decayed,
    "linear": _decayed,
    "short_conv": _short_conv,
}
