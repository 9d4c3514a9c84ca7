"""From a time to what it means: bytes and operations a second, and the share of the floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from attnctl.ops.case import split_case
from attnctl.ops.catalog import case_of
from attnctl.perf.amounts import Needed, needed
from attnctl.smoke.trials import BackendTrials, Ceiling, Timing, Trial


def rated(results: Iterable[BackendTrials], ceilings: Mapping[str, Ceiling]) -> list[BackendTrials]:
    """The results with what every timing comes to on its device."""
    return [
        msgspec.structs.replace(
            one, trials=tuple(_rated(trial, ceilings[one.device]) for trial in one.trials)
        )
        if one.device in ceilings
        else one
        for one in results
    ]


def _rated(trial: Trial, ceiling: Ceiling) -> Trial:
    if trial.timing is None:
        return trial
    amount = needed(case_of(*split_case(trial.case)))
    return msgspec.structs.replace(trial, timing=rate(trial.timing, amount, ceiling))


def rate(timing: Timing, amount: Needed, ceiling: Ceiling) -> Timing:
    """The timing with its rates. A case that needs nothing has neither floor nor share."""
    # 10^9 a second is a thousand a microsecond
    memory_us = amount.bytes / 1e3 / ceiling.read_gbps if ceiling.read_gbps else 0.0
    matrix_us = amount.flops / 1e3 / ceiling.matrix_gflops if ceiling.matrix_gflops else 0.0
    floor = max(memory_us, matrix_us)
    return msgspec.structs.replace(
        timing,
        bytes=amount.bytes,
        flops=amount.flops,
        gbps=amount.bytes / 1e3 / timing.median_us,
        gflops=amount.flops / 1e3 / timing.median_us,
        floor_us=floor,
        bound="" if not floor else "memory" if memory_us >= matrix_us else "arithmetic",
        share=floor / timing.median_us,
    )
