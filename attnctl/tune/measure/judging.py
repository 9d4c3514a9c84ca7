"""Judges candidates on small batches around the edges of tiles, pages and segments."""

from __future__ import annotations

import msgspec
import torch

from attnctl.ops.compare import Comparison
from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.measure.batch import Batch, Lengths, build
from attnctl.tune.measure.candidates import judged, order_of, runtime_of
from attnctl.tune.settings import Work

SMALL_DECODE = ((1, 63, 64, 300, 1030), (1, 17, 64, 127))
"""Contexts of the batches that candidates are judged on: around a tile, a page and a segment.

In the second none is long enough to be cut: a kernel may be another one then.
"""

SMALL_PREFILL = (129, 97, 5, 700)
SMALL_QUERIES = (129, 33, 1, 64)


class Judging:
    """The small batches of the last layer and block size that were asked for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._batches: dict[object, list[Batch]] = {}

    def forget(self) -> None:
        self._batches.clear()

    def verdict(self, work: Work, candidate: Candidate) -> Verdict:
        return judged(lambda: self._check(work, candidate), self._device)

    def _check(self, work: Work, candidate: Candidate) -> Comparison:
        """The first comparison that fails, or the last one."""
        runtime = runtime_of(candidate)
        order = order_of(runtime)
        key = (msgspec.json.encode(_small(work)), candidate.page, order)
        if key not in self._batches:
            self._batches.clear()
            work = msgspec.structs.replace(work, page=candidate.page)
            self._batches[key] = [
                build(work, lengths, self._device, order) for lengths in _small_lengths(work)
            ]
        for batch in self._batches[key]:
            found = batch.check(runtime)
            if found.verdict != "pass":
                break
        return found


def _small(work: Work) -> Work:
    """What the small batch depends on: not the point's own lengths."""
    query = work.query if work.phase == "decode" else 0
    return msgspec.structs.replace(work, batch=0, context=0, query=query, page=0)


def _small_lengths(work: Work) -> list[Lengths]:
    if work.phase != "decode":
        queries = SMALL_QUERIES if work.layer.group.causal else SMALL_PREFILL
        return [Lengths(queries=queries, contexts=SMALL_PREFILL, whole=True)]
    found = []
    for contexts in SMALL_DECODE:
        asked = (work.query,) * len(contexts)
        longer = tuple(max(work.query, context) for context in contexts)
        found.append(Lengths(queries=asked, contexts=longer, whole=True))
    return found
