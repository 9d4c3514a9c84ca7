"""Paged attention on a processor: C++ built on first use, or torch where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from attnctl.findings import Finding

if TYPE_CHECKING:
    from torch import Tensor

    from attnctl.ops.paged import Paged
    from attnctl.probe.host import Host

SOURCE = Path(__file__).with_name("paged.cpp")


class Kernels(Protocol):
    """What both ways of computing offer; `name` is "c++" or "torch"."""

    name: str

    def attend(
        self,
        query: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        block_table: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        params: Paged,
        out: Tensor,
    ) -> None:
        """Fills out [T, H, Dv]; rows of no sequence stay. Shapes: attnctl.ops.paged."""

    def write(
        self,
        key: Tensor,
        value: Tensor,
        key_cache: Tensor,
        value_cache: Tensor,
        slot_mapping: Tensor,
        k_scale: float | Tensor,
        v_scale: float | Tensor,
    ) -> None:
        """Row t of key and value to slot_mapping[t]; slots below 0, rows without one: nothing.

        An FP8 cache takes value / scale, clamped to what it can hold; an int8 cache takes scale
        tensors [N, P, Hk] float32 and fills them.
        """


def open_kernels(host: Host) -> tuple[Kernels, Finding]:
    """The compiled kernels, or torch's with a finding that says why there is no compiler."""
    from attnctl.kernels.cpu.build_tiles import build_tiles
    from attnctl.kernels.cpu.fallback import TorchKernels

    built = build_tiles(host, SOURCE)
    if built.path is None:
        return TorchKernels(), built.finding
    from attnctl.kernels.cpu.call import NativeKernels

    return NativeKernels(built.path), built.finding
