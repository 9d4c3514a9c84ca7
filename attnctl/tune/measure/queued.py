"""Times of calls that a GPU finds waiting: the host enqueues all of them while the GPU spins.

A short prefill takes the host longer to launch than the GPU to run. An engine's host runs ahead of
the GPU, so that the GPU's time is what a choice is made by: a sample stands behind a wait on the
GPU that is long enough for the host to enqueue all of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from attnctl.tune.measure.timing import SHORTEST_US, Call, runs_for

QUEUED_US = 600.0
"""About what the calls of one sample take the GPU; nothing but the GPU counts in it."""

MOST_QUEUED = 32
"""Calls of a sample: a queue holds about a thousand launches, and a call makes several."""

SPARE = 1.5
"""How many times as long as the host took last time the GPU waits."""

LEAST_WAIT_US = 100.0
TRIES = 6
TICKS = 200_000
"""Of the GPU's clock that a wait of the calibration lasts: about 0.1 ms."""


class Gpu(Protocol):
    """The current stream of a GPU, as far as a sampler needs it."""

    def event(self) -> Any:
        """One that keeps its time: record, query, synchronize, elapsed_time."""

    def spin(self, ticks: int) -> None:
        """Enqueues a wait of so many ticks of the GPU's clock."""


class Cuda:
    def event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)

    def spin(self, ticks: int) -> None:
        torch.cuda._sleep(ticks)


class QueuedSampler:
    """Time between two events around calls that were all enqueued before the first of them began.

    clock is "events" where the host cannot run ahead, as a call waits for the GPU: then the host's
    time counts where it is the longer one. host_us: the least that it took to launch a call.
    """

    def __init__(self, calls: Sequence[Call], gpu: Gpu | None = None) -> None:
        self._calls, self._next, self._gpu = calls, 0, gpu or Cuda()
        self._begin, self._end = self._gpu.event(), self._gpu.event()
        self.clock, self._least_us = "queue", float("inf")
        self._ticks_per_us = self._calibrated()
        self._next_call()
        once = self._straight(2)
        self._straight_runs = runs_for(SHORTEST_US, once)
        self._runs = runs_for(QUEUED_US, once, MOST_QUEUED)
        self._wait_us = max(LEAST_WAIT_US, 2 * SPARE * once * self._runs)
        self._runs = runs_for(QUEUED_US, self.sample_us(), MOST_QUEUED)

    @property
    def host_us(self) -> float:
        return self._least_us if self.clock == "queue" else 0.0

    def sample_us(self) -> float:
        for tried in range(TRIES if self.clock == "queue" else 0):
            found = self._queued(self._runs)
            if found is not None:
                return found
            self._wait_us *= 2
            if tried:  # a longer wait did not help: the queue may be full
                self._runs = max(1, self._runs // 2)
        self.clock = "events"
        return self._straight(self._straight_runs)

    def _queued(self, runs: int) -> float | None:
        """None where the GPU came to the calls before the host had enqueued all of them."""
        self._gpu.spin(int(max(LEAST_WAIT_US, self._wait_us) * self._ticks_per_us))
        # the caches of the GPU hold what another candidate left, as the processor's do
        self._next_call()
        self._begin.record()
        started = time.perf_counter_ns()
        for _ in range(runs):
            self._next_call()
        self._end.record()
        took_us = (time.perf_counter_ns() - started) / 1e3
        ahead = not self._begin.query()
        self._end.synchronize()
        if not ahead:
            return None
        self._least_us = min(self._least_us, took_us / runs)
        # what the host takes varies, and the wait follows it slowly when that becomes less
        self._wait_us = max(SPARE * (took_us + self._least_us), 0.8 * self._wait_us)
        return self._elapsed_us() / runs

    def _straight(self, runs: int) -> float:
        """As a program calls it, after one call that is not timed."""
        self._next_call()
        self._begin.record()
        for _ in range(runs):
            self._next_call()
        self._end.record()
        self._end.synchronize()
        return self._elapsed_us() / runs

    def _next_call(self) -> None:
        self._calls[self._next]()
        self._next = (self._next + 1) % len(self._calls)

    def _elapsed_us(self) -> float:
        return float(self._begin.elapsed_time(self._end)) * 1e3

    def _calibrated(self) -> float:
        """Ticks of the GPU's clock in a microsecond."""
        for _ in range(2):
            self._begin.record()
            self._gpu.spin(TICKS)
            self._end.record()
            self._end.synchronize()
        return TICKS / max(1.0, self._elapsed_us())
