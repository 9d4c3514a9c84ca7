"""A cost model that rules settings out before they are compiled. No torch.

A lower bound is taken from bytes and operations with their padding, at the ceilings that were
measured, and from how much of the device the programs fill. It is crude, so that it rules out only
what it holds to be several times slower than the best that it knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attnctl.tune.exchange import Site
from attnctl.tune.settings import Effort, Setting

FACTOR = 4.0
"""How many times the least estimate a setting's may be."""

ENOUGH = 0.5
"""The share of a device's units whose loads already take all of its bandwidth."""

LAUNCH_US = 3.0


def estimate_us(effort: Effort, site: Site) -> float:
    """About the least time for this effort. Without measured ceilings only ratios mean anything."""
    units = max(1, site.units)
    waves = math.ceil(effort.programs / units)
    filled = effort.programs / (waves * units)
    memory_us = effort.bytes / 1e3 / (site.read_gbps or 1.0) / min(1.0, filled / ENOUGH)
    matrix_us = effort.flops / 1e3 / (site.matrix_gflops or 1.0) / filled
    return LAUNCH_US + max(memory_us, matrix_us)


def split(
    settings: Sequence[Setting], site: Site
) -> tuple[list[tuple[float, Setting]], list[tuple[Setting, str]]]:
    """Those to try with their estimates, and those ruled out with the reason.

    The default, which stands first, is always tried; so is what cannot be estimated.
    """
    known = [estimate_us(s.effort, site) if s.effort else None for s in settings]
    least = min((one for one in known if one is not None), default=0.0)
    kept: list[tuple[float, Setting]] = []
    pruned: list[tuple[Setting, str]] = []
    for place, (setting, estimate) in enumerate(zip(settings, known, strict=True)):
        if place and estimate is not None and estimate > FACTOR * least:
            assert setting.effort is not None
            programs = setting.effort.programs
            ratio = estimate / least
            pruned.append(
                (
                    setting,
                    f"estimated at {ratio:.1f} times the best estimate: {programs} programs for "
                    f"{site.units} units",
                )
            )
        else:
            kept.append((least if estimate is None else estimate, setting))
    return kept, pruned
