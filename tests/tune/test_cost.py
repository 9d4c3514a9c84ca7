"""The cost model: what it holds to be hopeless, and what it never rules out."""

from __future__ import annotations

from attnctl.tune.cost import estimate_us, split
from attnctl.tune.exchange import Site
from attnctl.tune.settings import Effort, Setting

SITE = Site(torch="2.11", units=100, read_gbps=4000.0, matrix_gflops=700_000.0)


def effort(bytes_: float = 4e8, flops: float = 1e6, programs: int = 100) -> Effort:
    return Effort(bytes=bytes_, flops=flops, programs=programs)


def test_bytes_and_operations_bound_the_time() -> None:
    """400 MB at 4 TB/s take 100 us, 70 GFLOP at 700 TFLOP/s as long."""
    assert round(estimate_us(effort(), SITE)) == 103
    assert round(estimate_us(effort(bytes_=1, flops=7e10), SITE)) == 103


def test_few_programs_cannot_use_the_whole_device() -> None:
    """A tenth of the units has a fifth of the bandwidth and a tenth of the operations."""
    assert round(estimate_us(effort(programs=10), SITE) - 3) == 500
    assert round(estimate_us(effort(bytes_=1, flops=7e10, programs=10), SITE) - 3) == 1000


def test_a_last_wave_that_is_nearly_empty_costs_a_whole_one() -> None:
    """101 programs on 100 units take twice as long as 100."""
    one = estimate_us(effort(bytes_=1, flops=7e10, programs=100), SITE) - 3
    other = estimate_us(effort(bytes_=1, flops=7.07e10, programs=101), SITE) - 3
    assert round(other / one, 2) == 2.0


def test_the_default_and_the_unknown_are_never_ruled_out() -> None:
    """The first is tried whatever its estimate; without an estimate there is no reason."""
    hopeless = Setting(knobs={"a": 1}, effort=effort(programs=1))
    kept, pruned = split(
        [
            Setting(effort=effort(programs=1)),
            Setting(knobs={"b": 1}, effort=effort()),
            Setting(knobs={"c": 1}),
            hopeless,
        ],
        SITE,
    )
    assert [setting.knobs for _, setting in kept] == [{}, {"b": 1}, {"c": 1}]
    assert [setting for setting, _ in pruned] == [hopeless]
    assert pruned[0][1].startswith("estimated at ")
