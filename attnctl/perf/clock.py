"""The time of a call on this process's device, over copies of its tensors that no cache holds."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from functools import partial
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from attnctl.smoke.trials import Timing

if TYPE_CHECKING:
    import torch

    from attnctl.perf.noting import Noting
    from attnctl.tune.measure.timing import Call

ROUNDS, FEWEST = 11, 3
LONGEST_S = 2.0
"""What is slow is sampled until then, and FEWEST times at least."""

MOST_COPIES = 64
OVER_CACHE = 3
"""Copies hold together so many times what the last-level cache does, or there are MOST_COPIES."""


def timing_of(runtime: Noting, device: str, cache_bytes: int) -> Timing | None:
    """Of the last computing call that a case made of the runtime; None where it made none."""
    return None if runtime.last is None else timed(runtime.last, device, cache_bytes)


def timed(call: partial[Any], device: str, cache_bytes: int) -> Timing:
    """The median and the spread of a call's time, on a GPU as a graph where it can be one.

    What launches it takes the host longer than many a kernel takes the device.
    """
    import torch

    from attnctl.tune.measure.timing import sampler

    calls = copies(call, cache_bytes)
    found = sampler(calls, torch.device(device))
    times: list[float] = []
    begin = time.monotonic()
    while len(times) < ROUNDS:
        if len(times) >= FEWEST and time.monotonic() - begin > LONGEST_S:
            break
        times.append(found.sample_us())
    low, _, high = quantiles(times, n=4, method="inclusive")
    return Timing(
        median_us=median(times),
        iqr_us=high - low,
        runs=len(times),
        copies=len(calls),
        clock=found.clock,
    )


def copies(call: partial[Any], cache_bytes: int) -> list[Call]:
    """The call, and others of the same on tensors of their own, strides and gaps included."""
    made: list[Call] = [call]
    held = _held_bytes(call)
    wanted = max(2, -(-OVER_CACHE * cache_bytes // max(1, held)))
    for _ in range(min(wanted, MOST_COPIES) - 1):
        memo: dict[int, Any] = {}
        try:
            arguments = copy.deepcopy((call.args, call.keywords), memo)
        except Exception:  # what an adapter's metadata holds may not be copied; its memory may end
            break
        made.append(partial(call.func, *arguments[0], **arguments[1]))
    return made


def _held_bytes(call: partial[Any]) -> int:
    """Of the memory behind all tensors that a call is given, each once."""
    blocks = {}
    for tensor in _tensors((call.args, call.keywords)):
        storage = tensor.untyped_storage()
        blocks[storage.data_ptr()] = storage.nbytes()
    return sum(blocks.values())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif hasattr(value, "__struct_fields__"):
        for name in value.__struct_fields__:
            yield from _tensors(getattr(value, name))
