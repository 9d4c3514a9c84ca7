"""The batches on which the settings of a layer shape are run: those that a plan may meet."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl.profile.values import Entry
from attnctl.tune.workload import Load

LEAST_CONTEXT = 16
LEAST_QUERY = 16
BEYOND = 4
"""How far beyond the largest point a pick still serves, as attnctl.profile.pick has it."""


def loads_of(entry: Entry) -> tuple[Load, ...]:
    """The points that were timed, and the powers of two as far as these serve on each axis.

    How a kernel is cut follows from the batch's shape, so that batches between two points may run
    variants that neither of them does. A state does not see how long the context is.
    """
    found: dict[str, Load] = {}
    for load in (*_points(entry), *_decode(entry), *_prefill(entry)):
        found.setdefault(str(load), load)
    return tuple(found.values())


def _points(entry: Entry) -> Iterator[Load]:
    for one in entry.points:
        yield Load(phase=one.phase, batch=one.batch, context=one.context, query=one.query)


def _decode(entry: Entry) -> Iterator[Load]:
    steps = [one for one in entry.points if one.phase == "decode"]
    if not steps:
        return
    contexts = _powers(LEAST_CONTEXT, BEYOND * max(one.context for one in steps))
    if entry.shape.state:
        contexts = contexts[-1:]
    for batch in _powers(1, BEYOND * max(one.batch for one in steps)):
        for context in contexts:
            yield Load(phase="decode", batch=batch, context=context)


def _prefill(entry: Entry) -> Iterator[Load]:
    """Prompts by themselves and as the last chunk of the longest context."""
    chunks = [one for one in entry.points if one.phase == "prefill"]
    if not chunks:
        return
    longest = max(one.context for one in chunks)
    for query in _powers(LEAST_QUERY, max(one.query for one in chunks)):
        for context in (query, longest):
            if query <= context:
                yield Load(phase="prefill", batch=1, context=context, query=query)


def _powers(least: int, most: int) -> list[int]:
    """Powers of two from one to the other, both ends among them where they are none."""
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
