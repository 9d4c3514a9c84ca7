"""No fact of a machine is longer than a person would read, whatever a file or a library gave."""

from __future__ import annotations

from typing import Any

import msgspec

from attnctl.machine import Machine

LARGE_BYTES = 1 << 17
"""Of a machine as JSON: ten times what the largest known one takes."""
LONGEST = 500


def in_bounds(machine: Machine) -> Machine:
    """The machine; where it is larger than any, with its long texts cut.

    A file of a hung or broken driver may have no end, and 4 MiB of it are read.
    """
    try:
        if len(msgspec.json.encode(machine)) <= LARGE_BYTES:
            return machine
    except UnicodeEncodeError:  # half a character, out of a damaged tape
        return machine
    return msgspec.convert(_cut(msgspec.to_builtins(machine)), Machine)


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]}... ({len(value)} characters)"
    if isinstance(value, dict):
        return {_cut(name): _cut(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(one) for one in value]
    return value
