"""Times of calls on a device: one sample of each after another, over copies that no cache holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

SHORTEST_US = 1500.0
"""A sample runs at least this long, so that a clock's step and one interrupt do not count."""

GRAPH_US = 800.0
"""As much for replays of a graph, in which nothing of the host is."""

REPLAY_US = 20_000.0
"""About the longest that one replay of a graph may take: the rounds of many must fit a budget."""

HOST_CALLS = 4

MOST_RUNS = 4096

Call = Callable[[], Any]


class Sampler(Protocol):
    @property
    def clock(self) -> str:
        """What times: a processor as host_clock says; a GPU by a "graph", a "queue" or "events"."""

    @property
    def host_us(self) -> float:
        """What the host takes to launch one call, where that is not in the time; else 0."""

    def sample_us(self) -> float:
        """The mean time of a call over one sample."""


def sampler(calls: list[Call], device: torch.device) -> Sampler:
    """A sampler of these calls in turns: as a CUDA graph, where they can be captured."""
    if device.type != "cuda":
        return HostSampler(calls)
    captured = _capture(calls)
    if captured is not None:
        replayed, each = captured
        return GraphSampler(replayed.replay, each, host_us=_host_us(calls), kept=calls)
    from attnctl.tune.measure.queued import QueuedSampler

    return QueuedSampler(calls)


def host_clock() -> str:
    """What times a processor: "process" where one thread runs, whose time no other can lengthen."""
    return "process" if torch.get_num_threads() == 1 else "wall"


CLOCKS = {"process": time.process_time_ns, "wall": time.perf_counter_ns}


class HostSampler:
    """Time on a processor, as host_clock says."""

    host_us = 0.0

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls, self._next = calls, 0
        self.clock = host_clock()
        self._clock = CLOCKS[self.clock]
        calls[0]()
        once = self._run(1)
        self._runs = runs_for(SHORTEST_US, once)

    def sample_us(self) -> float:
        return self._run(self._runs)

    def _run(self, runs: int) -> float:
        begin = self._clock()
        for _ in range(runs):
            self._calls[self._next]()
            self._next = (self._next + 1) % len(self._calls)
        return (self._clock() - begin) / 1e3 / runs


class GraphSampler:
    """Time between two events on a GPU's stream around replays of a graph of `each` calls.

    kept: the calls of the graph, whose tensors it reads and writes as long as it is replayed.
    """

    clock = "graph"

    def __init__(
        self, replay: Call, each: int, host_us: float = 0.0, kept: Sequence[Call] = ()
    ) -> None:
        self._replay, self._each, self.host_us, self._kept = replay, each, host_us, kept
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        replay()
        self._runs = runs_for(GRAPH_US, self._run(2) * each)

    def sample_us(self) -> float:
        return self._run(self._runs)

    def _run(self, runs: int) -> float:
        begin, end = self._events
        begin.record()
        for _ in range(runs):
            self._replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / (runs * self._each)


def runs_for(sample_us: float, once_us: float, most: int = MOST_RUNS) -> int:
    """How many runs of one that takes so long make a sample."""
    return max(1, min(most, int(sample_us / max(once_us, 0.1))))


def _host_us(calls: list[Call]) -> float:
    """The least that launching a call takes the host."""
    found = []
    for call in (calls * HOST_CALLS)[:HOST_CALLS]:
        begin = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - begin) / 1e3)
    torch.cuda.synchronize()
    return min(found)


def _capture(calls: Sequence[Call]) -> tuple[torch.cuda.CUDAGraph, int] | None:
    """A graph, and how many of the calls it makes; None where one of them waits for the device."""
    side = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        calls[0]()
        begin.record(side)
        calls[-1]()
        end.record(side)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    # what computes for long leaves nothing in a cache either, and needs no more copies
    most = max(2, int(REPLAY_US / max(1.0, 1e3 * begin.elapsed_time(end))))
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for call in calls[:most]:
                call()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    return graph, len(calls[:most])
