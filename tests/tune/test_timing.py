"""What a sample of a GPU's time holds: the calls between two events, and nothing before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attnctl.tune.measure.timing import DeviceSampler


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


def sampler(log: list[str], calls: int, each: int) -> DeviceSampler:
    """A sampler of three runs, which times on no device."""
    made = DeviceSampler.__new__(DeviceSampler)

    def call(name: str) -> Callable[[], Any]:
        return lambda: log.append(name)

    made._calls = [call(f"call {n}") for n in range(calls)]
    made._each, made._next, made._runs = each, 0, 3
    made._events = [Event("begin", log), Event("end", log)]  # type: ignore[assignment]
    return made


def test_a_call_that_is_not_timed_goes_before_calls_of_the_host() -> None:
    """Its code and tables are in the processor's caches when the timed ones begin."""
    log: list[str] = []
    one = sampler(log, calls=3, each=1)
    assert one.sample_us() == pytest.approx(1000.0)
    assert log == ["call 0", "begin", "call 1", "call 2", "call 0", "end", "wait"]
    log.clear()
    one.sample_us()
    assert log[0] == "call 1"


def test_a_graph_of_many_calls_is_replayed_as_often_as_it_is_timed() -> None:
    """The host has no part in it, so that nothing needs to go before."""
    log: list[str] = []
    assert sampler(log, calls=1, each=10).sample_us() == pytest.approx(100.0)
    assert log == ["begin", "call 0", "call 0", "call 0", "end", "wait"]
