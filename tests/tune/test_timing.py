"""What a sample of a GPU's time holds: the calls between two events, and nothing of the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from attnctl.tune.measure.queued import MOST_QUEUED, TICKS, QueuedSampler
from attnctl.tune.measure.timing import GraphSampler


class Event:
    """Stands for a CUDA event: writes down when it is recorded; the time between two is 3 ms."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def record(self) -> None:
        self._log.append(self._name)

    def synchronize(self) -> None:
        self._log.append("wait")

    def elapsed_time(self, other: Event) -> float:
        return 3.0


def test_a_graph_of_many_calls_is_replayed_as_often_as_it_is_timed() -> None:
    """The host has no part in it, so that nothing needs to go before."""
    log: list[str] = []
    made = GraphSampler.__new__(GraphSampler)
    made._replay, made._each, made._runs = lambda: log.append("replay"), 10, 3
    made._events = [Event("begin", log), Event("end", log)]
    assert made.sample_us() == pytest.approx(100.0)
    assert log == ["begin", "replay", "replay", "replay", "end", "wait"]


def now_us() -> float:
    return time.perf_counter_ns() / 1e3


class Stream:
    """A GPU that does what is enqueued in its order, beside a host whose time is the real one.

    A tick is 1 ns of it. done_us: when all that was enqueued is done.
    """

    def __init__(self) -> None:
        self.done_us = 0.0
        self.longest_us = 0.0

    def work(self, us: float) -> None:
        self.done_us = max(self.done_us, now_us()) + us

    def spin(self, ticks: int) -> None:
        self.longest_us = max(self.longest_us, ticks / 1e3)
        self.work(ticks / 1e3)

    def event(self) -> Mark:
        return Mark(self)

    def wait(self) -> None:
        while now_us() < self.done_us:
            pass


class Mark:
    """An event on such a stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self.at_us = stream, 0.0

    def record(self) -> None:
        self._stream.work(0.0)
        self.at_us = self._stream.done_us

    def query(self) -> bool:
        return now_us() >= self.at_us

    def synchronize(self) -> None:
        while not self.query():
            pass

    def elapsed_time(self, other: Mark) -> float:
        return (other.at_us - self.at_us) / 1e3


def call_of(
    stream: Stream, gpu_us: float, host_us: float, waits: bool = False
) -> Callable[[], Any]:
    def call() -> None:
        until = now_us() + host_us
        while now_us() < until:
            pass
        stream.work(gpu_us)
        if waits:
            stream.wait()

    return call


def test_what_the_host_takes_to_launch_is_not_in_the_time() -> None:
    """20 us on the GPU that take 200 us to launch are 20 us, and the host's are told beside."""
    stream = Stream()
    made = QueuedSampler([call_of(stream, 20.0, 200.0)] * 2, stream)
    assert [made.sample_us() for _ in range(3)] == pytest.approx([20.0] * 3, rel=1e-6)
    assert made.clock == "queue"
    assert made.host_us >= 200.0


def test_a_launch_that_is_shorter_than_its_work_is_timed_alike() -> None:
    """No wait is needed for the first of them; the time is the GPU's again."""
    stream = Stream()
    made = QueuedSampler([call_of(stream, 700.0, 30.0)], stream)
    assert made.sample_us() == pytest.approx(700.0, rel=1e-6)
    assert made.clock == "queue"


def test_a_host_that_was_slower_than_the_wait_is_given_a_longer_one() -> None:
    """The sample is taken again: one with the host's pauses in it is not used."""
    stream = Stream()
    slow = [30.0]

    def call() -> None:
        until = now_us() + slow[0]
        while now_us() < until:
            pass
        stream.work(50.0)

    made = QueuedSampler([call], stream)
    before = stream.longest_us
    slow[0] = 2000.0
    assert made.sample_us() == pytest.approx(50.0, rel=1e-6)
    assert made.clock == "queue"
    assert stream.longest_us > before


def test_calls_that_wait_for_the_gpu_are_timed_as_a_program_calls_them() -> None:
    """No queue holds them: the clock says so, and the host's part is in the time."""
    stream = Stream()
    made = QueuedSampler([call_of(stream, 20.0, 200.0, waits=True)], stream)
    assert made.clock == "events"
    assert made.sample_us() >= 200.0
    assert made.host_us == 0.0


def test_a_sample_is_no_longer_than_a_queue_holds() -> None:
    """Very short calls are as many as are surely enqueued at once."""
    stream = Stream()
    count = [0]

    def call() -> None:
        count[0] += 1
        stream.work(1.0)

    made = QueuedSampler([call], stream)
    count[0] = 0
    made.sample_us()
    assert count[0] == MOST_QUEUED + 1
    assert stream.longest_us >= TICKS / 1e3
