"""One fact, several sources: the first that answers wins, and the others' errors are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from attnctl.machine import Fact, Status
from attnctl.probe.answers import Field, Silence
from attnctl.probe.host import Host, HostError, read
from attnctl.probe.ledger import Ledger

T = TypeVar("T")
U = TypeVar("U")

MEMINFO = "/proc/meminfo"
# a whole number in a file of sysfs is at most this long; longer is not a number but a damaged tape
_MOST_DIGITS = 19


class Reading(msgspec.Struct, Generic[T], frozen=True):
    """What one source says of one fact.

    reason: why it has no value. note: what to know about the value that it has.
    assumed: the value follows from a table; nobody measured it here.
    """

    source: str
    value: T | None = None
    reason: str = ""
    note: str = ""
    assumed: bool = False
    timed_out: bool = False


def told(source: str, field: Field[T]) -> Reading[T]:
    """A reading of a field of a child's answer."""
    return Reading(source, field.value, field.error)


def untold(source: str, why: Silence) -> Reading[T]:
    """The reading of a source that says nothing of this GPU."""
    return Reading(source, None, why.reason, timed_out=why.timed_out)


def mapped(reading: Reading[T], change: Callable[[T], U | None]) -> Reading[U]:
    """The reading with another value made of its own."""
    value = None if reading.value is None else change(reading.value)
    return Reading(reading.source, value, reading.reason, timed_out=reading.timed_out)


def settle(ledger: Ledger, path: str, *readings: Reading[T]) -> T | None:
    """The first value, its fact written into the ledger; None, and every reason, without one.

    The errors of the sources before the one that answered stand in the fact's reason.
    """
    failures: dict[str, None] = {}
    for reading in readings:
        if reading.value is not None:
            status: Status = "assumed" if reading.assumed else "ok"
            reason = reading.note or "; ".join(failures)
            ledger.facts[path] = Fact(status, reading.source, reason)
            return reading.value
        if reading.reason:
            failures[f"{reading.source}: {reading.reason}"] = None
    sources = ", ".join(dict.fromkeys(reading.source for reading in readings))
    timed_out = any(reading.timed_out for reading in readings)
    reason = "; ".join(failures) or "no source says"
    ledger.missing(path, sources, reason, "timeout" if timed_out else "unknown")
    return None


def number_in(host: Host, path: str) -> Reading[int]:
    """A whole number that a file holds."""
    try:
        value = whole_number(read(host, path))
    except HostError as error:
        return Reading(path, None, error.detail)
    return Reading(path, value, "" if value is not None else "not a number")


def text_in(host: Host, path: str) -> Reading[str]:
    """The first line of a file; an empty file says nothing."""
    try:
        lines = read(host, path).strip().splitlines()
    except HostError as error:
        return Reading(path, None, error.detail)
    return Reading(path, lines[0].strip() or None) if lines else Reading(path, None, "empty")


def whole_number(text: str) -> int | None:
    """A decimal or 0x number that is not negative and fits 63 bits, else None."""
    text = text.strip()
    if len(text) > _MOST_DIGITS or not text.isascii():
        return None
    try:
        value = int(text, 16) if text.lower().startswith("0x") else int(text, 10)
    except ValueError:
        return None
    return value if 0 <= value < 1 << 63 else None


def system_memory(host: Host) -> tuple[Reading[int], Reading[int]]:
    """Total and available bytes of the machine's own memory."""
    try:
        lines = read(host, MEMINFO).splitlines()
    except HostError as error:
        failed: Reading[int] = Reading(MEMINFO, None, error.detail)
        return failed, failed
    sizes = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return _kib(sizes, "MemTotal"), _kib(sizes, "MemAvailable")


def _kib(sizes: dict[str, list[str]], name: str) -> Reading[int]:
    words = sizes.get(name) or [""]
    value = whole_number(words[0])
    if value is None or value >= 1 << 53:
        return Reading(MEMINFO, None, f"no {name}")
    return Reading(MEMINFO, value * 1024)
