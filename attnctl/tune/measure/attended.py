"""What batches of paged and of latent attention share: how a call is made, and how it is judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.ops.compare import Comparison, compare, fault, guarded, overrun
from attnctl.tune.measure.lengths import Lengths, Places


class AttendedBatch(ABC):
    """Queries over pages, every copy with pages of its own. out_width: of an output's head."""

    lengths: Lengths
    device: torch.device
    query: Tensor
    out_width: int
    places: list[Places]

    @abstractmethod
    def _call(self, runtime: Any, copy: int, out: Tensor) -> Callable[[], Any]:
        """A copy's call into out."""

    @abstractmethod
    def _expected(self, runtime: Any) -> tuple[Tensor, Tensor]:
        """The checked rows in float64, and in the output's dtype with the kernel's own rounding."""

    def calls(self, runtime: Any) -> list[Callable[[], Any]]:
        out = self.query.new_empty(*self.query.shape[:2], self.out_width)
        return [self._call(runtime, copy, out) for copy in range(self.lengths.copies)]

    def check(self, runtime: Any) -> Comparison:
        shape = (*self.query.shape[:2], self.out_width)
        out, buffer = guarded(shape, self.query.dtype, self.device)
        self._call(runtime, 0, out)()
        stray = overrun(buffer)
        if stray:
            return fault("overrun", stray)
        if not bool(torch.isfinite(out).all()):
            count = int((~torch.isfinite(out)).sum())
            return fault("unwritten", f"{count} of {out.numel()} elements not written")
        rows = self.lengths.checked_rows(self.places[0].starts.tolist()).to(self.device)
        return compare(out[rows], *self._expected(runtime))

    def metadata(self, runtime: Any, places: Places) -> Any:
        """One copy's, as the runtime builds it."""
        return runtime.build_metadata(
            places.starts,
            places.seq_lens,
            places.table,
            places.slots,
            max_query_len=max(self.lengths.queries),
            max_seq_len=max(self.lengths.contexts),
        )
