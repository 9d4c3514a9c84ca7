"""Batches of each operation at workload sizes, made on the device, with the rows that are checked.

build(...) gives one: calls(runtime) to be timed, check(runtime) to be judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from attnctl.exits import InputError
from attnctl.ops.compare import Comparison
from attnctl.tune.measure.lengths import Lengths as Lengths
from attnctl.tune.settings import Work


class Batch(Protocol):
    """One layer's work, laid out once for each of its copies, which no cache holds all of."""

    def calls(self, runtime: Any) -> list[Callable[[], Any]]:
        """One call for each copy."""

    def check(self, runtime: Any) -> Comparison:
        """Runs on poisoned outputs and compares the checked rows with the specification."""


def build(
    work: Work, lengths: Lengths, device: torch.device, order: tuple[int, ...] | None = None
) -> Batch:
    """The batch of a layer. order: the backend's own order of the cache's dimensions in memory."""
    op = work.layer.op
    if op in ("paged", "diffkv"):
        from attnctl.tune.measure.paged import PagedBatch

        return PagedBatch(work, lengths, device, order)
    if op in ("mla", "mla_sparse"):
        from attnctl.tune.measure.latent import LatentBatch, SparseBatch

        return (LatentBatch if op == "mla" else SparseBatch)(work, lengths, device)
    if op in ("gdn", "mamba1", "mamba2", "short_conv", "linear"):
        from attnctl.tune.measure.state import RecurrentBatch

        return RecurrentBatch(work, lengths, device)
    raise InputError(f"tune: layers of {op or work.layer.group.kind} have no batches to time")
