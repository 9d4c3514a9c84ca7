"""Differences between two machines: in what the hardware is, and in what changes a selection.

Both answers are tuples of Difference, sorted as a machine file is read: GPUs, processor, software.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import msgspec

from attnctl.machine import Cpu, Gpu, Machine, Vendor

VENDORS = ("nvidia", "amd", "intel")

# a data sheet rounds: 4800 for the H200, whose clock and bus width give 4917
BANDWIDTH_TOLERANCE = 0.03
MEMORY_TOLERANCE = 0.01
# firmware and kernel keep back a share of unified memory that differs between two boots
UNIFIED_MEMORY_TOLERANCE = 0.05

_GPU_FIELDS: Mapping[str, float] = MappingProxyType(
    {
        "arch": 0.0,
        "capability": 0.0,
        "pci_id": 0.0,
        "unit_count": 0.0,
        "eu_count": 0.0,
        "warp_size": 0.0,
        "shared_memory_bytes": 0.0,
        "bandwidth_gbps": BANDWIDTH_TOLERANCE,
        "fp64": 0.0,
        "fp16": 0.0,
    }
)
_CPU_FIELDS = ("arch", "vendor", "microarchitecture", "isa_level", "sve_bits")

# what rules, orders and a profile's key read; all else (names, timings, counters) moves by itself
_DRIVEN = ("status", "driver", "runtime", "gpus")
_PACKAGED = ("status", "version", "build", "usable")
_ON_CHIP = (
    *("visible", "logical_index", "arch", "capability", "features", "pci_id", "unit_count"),
    *("eu_count", "warp_size", "shared_memory_bytes", "bandwidth_gbps"),
    *("mig", "fp64", "fp16"),
)
_LABELS = frozenset({"name"})
_MEASURED = ("kind", "total_bytes")
_PROCESSOR = (*_CPU_FIELDS, "isa", "isa_unusable", "usable")


class Difference(msgspec.Struct, frozen=True):
    """One fact on which two machines differ: its key path, and both values (None: not known)."""

    path: str
    old: Any
    new: Any


def static_differences(old: Machine, new: Machine) -> tuple[Difference, ...]:
    """What cannot differ between two machines of one hardware model, and does.

    A field that either side does not know is not compared, nor is the number of cards; names are
    not: drivers and images spell the same card in several ways.
    """
    found: list[Difference] = []
    for vendor in VENDORS:
        found += _vendor(vendor, getattr(old, vendor), getattr(new, vendor))
    return (*found, *_cpu(old.cpu, new.cpu))


def differences(old: Machine, new: Machine) -> tuple[Difference, ...]:
    """What differs among the facts that a selection reads: hardware, drivers, masks, packages.

    Exact, and a fact that only one side knows counts. Names, sources and whatever moves from one
    probe to the next do not. A bundled machine has the packages of its usual image.
    """
    return tuple(_walk("", _selected_on(old), _selected_on(new)))


def _selected_on(machine: Machine) -> dict[str, Any]:
    """The facts that a selection reads, as decoded JSON."""
    facts = msgspec.to_builtins(machine)
    vendors = {name: _only(facts[name], _DRIVEN) for name in VENDORS}
    for vendor in vendors.values():
        vendor["gpus"] = [_gpu_read(gpu) for gpu in vendor["gpus"]]
    return {
        **vendors,
        "cpu": _only(facts["cpu"], _PROCESSOR),
        "packages": {n: _only(one, _PACKAGED) for n, one in _packages(machine).items()},
    }


def _gpu_read(gpu: Mapping[str, Any]) -> dict[str, Any]:
    memory = _only(gpu["memory"], _MEASURED)
    # a label, for a card that only one side has
    return {"name": gpu["name"], **_only(gpu, _ON_CHIP), "memory": memory}


def _packages(machine: Machine) -> dict[str, Any]:
    """Each package that counts as there, or that could not be asked about."""
    usual = machine.usual_packages if machine.origin == "bundled" else {}
    found = {name: {"status": "ok", "version": usual[name] or None} for name in usual}
    for name, package in machine.packages.items():
        # an absent package is one that is not listed, and one assumed counts as there
        if package.status != "absent":
            there = "ok" if package.status == "assumed" else package.status
            found[name] = msgspec.to_builtins(package) | {"status": there}
    return found


def _only(facts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: facts[name] for name in names if name in facts}


def _vendor(name: str, old: Vendor, new: Vendor) -> Iterator[Difference]:
    if bool(old.gpus) != bool(new.gpus):
        if {old.status, new.status} <= {"ok", "absent"}:
            yield Difference(f"{name}.gpus", len(old.gpus), len(new.gpus))
        return
    for index in range(max(len(old.gpus), len(new.gpus))):
        pair = [gpus[min(index, len(gpus) - 1)] for gpus in (old.gpus, new.gpus)]
        yield from _gpu(f"{name}.gpus.{index}", pair[0], pair[1])


def _gpu(path: str, old: Gpu, new: Gpu) -> Iterator[Difference]:
    for field, tolerance in _GPU_FIELDS.items():
        yield from _field(f"{path}.{field}", getattr(old, field), getattr(new, field), tolerance)
    kinds = [None if gpu.memory.kind == "unknown" else gpu.memory.kind for gpu in (old, new)]
    yield from _field(f"{path}.memory.kind", kinds[0], kinds[1])
    tolerance = UNIFIED_MEMORY_TOLERANCE if "unified" in kinds else MEMORY_TOLERANCE
    totals = old.memory.total_bytes, new.memory.total_bytes
    yield from _field(f"{path}.memory.total_bytes", totals[0], totals[1], tolerance)


def _cpu(old: Cpu, new: Cpu) -> Iterator[Difference]:
    for field in _CPU_FIELDS:
        yield from _field(f"cpu.{field}", getattr(old, field), getattr(new, field))
    if old.isa and new.isa:
        for feature in sorted(set(old.isa) ^ set(new.isa)):
            yield Difference(f"cpu.isa.{feature}", feature in old.isa, feature in new.isa)


def _field(path: str, old: Any, new: Any, tolerance: float = 0.0) -> Iterator[Difference]:
    """The difference of one field that both sides know, beyond the relative tolerance."""
    if old is None or new is None or _comparable(old) == _comparable(new):
        return
    if tolerance and abs(old - new) <= tolerance * max(abs(old), abs(new)):
        return
    yield Difference(path, old, new)


def _comparable(value: Any) -> Any:
    """Text without what is spelt in two ways: "x86-64-v3" and "x86_64_v3", "10DE:2335"."""
    if isinstance(value, str):
        return value.lower().replace("_", "").replace("-", "")
    return value


def _walk(path: str, old: Any, new: Any) -> Iterator[Difference]:
    """Differences of two decoded JSON values; a list of words differs word by word."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            if key not in _LABELS:
                yield from _walk(f"{path}.{key}".lstrip("."), old.get(key), new.get(key))
    elif _is_list(old) and _is_list(new):
        yield from _walk_lists(path, old, new)
    elif old != new:
        yield Difference(path, _brief(old), _brief(new))


def _walk_lists(path: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Difference]:
    kinds = {type(item) for item in (*old, *new)}
    if kinds == {str}:
        for word in dict.fromkeys((*old, *new)):
            if (word in old) != (word in new):
                yield Difference(f"{path}.{word}", word in old, word in new)
    elif kinds == {dict}:
        for index, (left, right) in enumerate(zip_longest(old, new)):
            yield from _walk(f"{path}.{index}", left, right)
    elif tuple(old) != tuple(new):
        yield Difference(path, tuple(old), tuple(new))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _brief(value: Any) -> Any:
    """A whole GPU or package that only one side has, by the name that a reader knows it by."""
    if not isinstance(value, dict):
        return value
    known = (value.get(key) for key in ("version", "name", "arch", "status"))
    return next((text for text in known if text is not None), None)
