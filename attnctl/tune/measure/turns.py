"""Times a point's candidates in turns, each proven right on the point's own batch before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import torch

from attnctl.tune.exchange import Candidate, Site, Times, Verdict
from attnctl.tune.measure.batch import Batch, Lengths, build
from attnctl.tune.measure.candidates import judged, order_of, raised, runtime_of
from attnctl.tune.measure.timing import Sampler, sampler
from attnctl.tune.settings import Work

MOST_COPIES = 64


class Turns:
    """The batches and samplers of one point, kept until the next. site: of this device."""

    def __init__(self, device: torch.device, site: Callable[[], Site]) -> None:
        self._device, self._site = device, site
        self._work: Work | None = None
        self._batches: dict[object, Batch] = {}
        self._samplers: dict[str, Sampler] = {}
        self._random = Random(7)
        # what was imported stays: it need not be looked through at each point
        gc.freeze()

    def begin(self, work: Work) -> bool:
        """True where it is another point than the last, whose memory is given back."""
        if work == self._work:
            return False
        self.forget()
        self._work = work
        return True

    def forget(self) -> None:
        """Gives the memory of a point back."""
        self._samplers.clear()
        self._batches.clear()
        self._work = None
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def prepared(self, candidate: Candidate) -> Verdict:
        """Judges a candidate on the point's own batch, and makes its sampler."""
        work = self._work
        assert work is not None
        if candidate.key in self._samplers:
            return Verdict()
        try:
            runtime = runtime_of(candidate)
            batch = self._batch(work, candidate.page, order_of(runtime))
        except Exception as error:
            return raised(error, self._device)
        verdict = judged(lambda: batch.check(runtime), self._device)
        if verdict.fault is None:
            try:
                made = sampler(batch.calls(runtime), self._device)
            except Exception as error:
                return raised(error, self._device)
            self._samplers[candidate.key] = made
        return verdict

    def times(self, keys: Sequence[str], rounds: int) -> Times:
        """So many samples of each that is prepared, in turns."""
        times: dict[str, list[float]] = {key: [] for key in keys}
        faults: dict[str, Verdict] = {}
        for _ in range(rounds):
            # no candidate always follows the same one
            for key in self._random.sample(keys, len(keys)):
                if key in faults:
                    continue
                try:
                    times[key].append(self._samplers[key].sample_us())
                except Exception as error:
                    faults[key] = raised(error, self._device)
        kept = {key: found for key, found in times.items() if key not in faults}
        made = {key: self._samplers[key] for key in kept}
        return Times(
            kept,
            faults,
            clocks={key: one.clock for key, one in made.items()},
            host_us={
                key: round(one.host_us, 3) for key, one in made.items() if self._launches(one)
            },
        )

    def _launches(self, one: Sampler) -> bool:
        """Whether what the host takes to launch it is worth telling: engines replay decode."""
        return self._work is not None and self._work.phase == "prefill" and one.host_us > 0

    def _batch(self, work: Work, page: int, order: tuple[int, ...] | None) -> Batch:
        key = (page, order)
        if key not in self._batches:
            whole = msgspec.structs.replace(work, page=page)
            lengths = Lengths.of(whole, self._copies(whole))
            self._batches[key] = build(whole, lengths, self._device, order)
        return self._batches[key]

    def _copies(self, work: Work) -> int:
        """As many as the last-level cache does not hold, two at least where memory allows."""
        from attnctl.tune.amounts import amounts

        found, site = amounts(work), self._site()
        wanted = max(2, -(-3 * site.cache_bytes // max(1, int(found.bytes))))
        room = int(0.25 * site.memory_bytes / max(1.0, found.held_bytes))
        return max(1, min(wanted, MOST_COPIES, room))
