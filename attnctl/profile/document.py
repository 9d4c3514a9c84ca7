"""The profile document: read, checked against its types, damage kept to the entry that has it."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from attnctl.exits import InputError
from attnctl.files import read_bytes
from attnctl.layer import Layer
from attnctl.machine import VENDORS, Gpu, Machine

SCHEMA = "attnctl.profile/1"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What the hardware is. A CPU has no pci_id; its unit_count is the cores it may use."""

    vendor: str
    arch: str
    pci_id: str | None = None
    unit_count: int | None = None

    def __str__(self) -> str:
        unit = f"{self.unit_count} units" if self.unit_count is not None else "units not known"
        return " ".join(filter(None, (self.vendor, self.arch, self.pci_id))) + f", {unit}"


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """What the timings were made with; None where it could not be told."""

    torch: str | None = None
    triton: str | None = None
    driver: str | None = None
    attnctl: str | None = None


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One backend at one point: the median of `runs` rounds and their interquartile range.

    Its best setting: kernel names the rival kernel of the backend where it has several, knobs what
    differs from the bundled defaults. default_us: the median with the bundled kernel and defaults
    in the same rounds. tried: how many settings were timed.
    """

    backend: str
    median_us: float
    iqr_us: float = 0.0
    runs: int = 1
    knobs: dict[str, int | str | bool] = {}
    kernel: str = ""
    default_us: float | None = None
    tried: int = 1

    def __post_init__(self) -> None:
        for name in ("median_us", "default_us"):
            time = getattr(self, name)
            if time is not None and not 0 < time < float("inf"):
                raise ValueError(f"{name} must be a positive time, found {time}")


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that could not win at one point, and why.

    pruned: a cost model or the device's limits ruled it out before it ran; the rest ran.
    """

    backend: str
    knobs: dict[str, int | str | bool] = {}
    kernel: str = ""
    why: Literal["pruned", "wrong", "error", "crashed", "timeout"]
    detail: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One workload point: B sequences of S context tokens, `query` new tokens each."""

    phase: Literal["prefill", "decode"]
    batch: int
    context: int
    query: int = 1
    weight: float = 1.0
    timings: tuple[Timing, ...]
    rejected: tuple[Rejected, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight must be a positive number, found {self.weight}")
        names = [timing.backend for timing in self.timings]
        if len(set(names)) < len(names):
            raise ValueError("a backend has two timings at one point")

    def __str__(self) -> str:
        query = f", q={self.query}" if self.phase == "prefill" or self.query > 1 else ""
        return f"{self.phase} B={self.batch}, S={self.context}{query}"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The layer shape that was timed; heads are per tensor-parallel rank."""

    op: str
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    head_size_v: int | None = None
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    features: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The timings of one layer shape. kernels: backend -> hash of the kernel source timed."""

    shape: Shape
    points: tuple[Point, ...]
    kernels: dict[str, str] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole document. bad_entries: those that did not read, each in one sentence.

    measured: the day, as 2026-11-30. conditions: how it was measured ("graph": "decode",
    "l2": "cold", "clock_mhz": ...), for the reader.
    """

    schema: str = SCHEMA
    name: str
    key: Key
    versions: Versions = Versions()
    measured: str = ""
    memory_bytes: int | None = None
    conditions: dict[str, int | float | str | bool] = {}
    entries: tuple[Entry, ...] = ()
    bad_entries: tuple[str, ...] = ()


class _Envelope(msgspec.Struct, kw_only=True):
    schema: str
    name: str
    key: Key
    versions: Versions = Versions()
    measured: str = ""
    memory_bytes: int | None = None
    conditions: dict[str, int | float | str | bool] = {}
    entries: list[msgspec.Raw] = []


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """The profile in a file. InputError where it does not read as a whole."""
    return parse(read_bytes(path, "profile"), str(path))


def parse(data: bytes, where: str) -> Profile:
    """The profile in these bytes; an entry that does not read is named in `bad_entries`."""
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where}: not a profile: {error}") from error
    _check_schema(envelope.schema, where)
    entries, bad = [], []
    for index, raw in enumerate(envelope.entries):
        try:
            entries.append(msgspec.json.decode(raw, type=Entry))
        except (msgspec.MsgspecError, RecursionError) as error:
            bad.append(f"{where}: entries[{index}] is left out: {error}")
    return Profile(
        schema=envelope.schema,
        name=envelope.name,
        key=envelope.key,
        versions=envelope.versions,
        measured=envelope.measured,
        memory_bytes=envelope.memory_bytes,
        conditions=envelope.conditions,
        entries=tuple(entries),
        bad_entries=tuple(bad),
    )


def _check_schema(schema: str, where: str) -> None:
    family, _, version = schema.partition("/")
    # a newer minor version ("1.4") adds keys, which are ignored; a newer major one changes them
    if family != "attnctl.profile" or version.partition(".")[0] != "1":
        raise InputError(
            f"{where}: schema is {schema!r} and this attnctl reads {SCHEMA}: "
            "upgrade attnctl, or take a profile of that schema"
        )


def key_of(machine: Machine, gpu: Gpu | None) -> Key:
    """The key under which a device's timings are kept."""
    if gpu is None:
        cpu = machine.cpu
        arch = cpu.microarchitecture or cpu.isa_level or cpu.arch or "unknown"
        return Key(vendor=cpu.vendor or "unknown", arch=arch, unit_count=cpu.usable)
    vendor = VENDORS[machine.platform]
    return Key(
        vendor=vendor, arch=gpu.arch or "unknown", pci_id=gpu.pci_id, unit_count=gpu.unit_count
    )


def versions_of(machine: Machine) -> Versions:
    """The versions that stand beside the key, as this machine has them."""
    vendor = {"cuda": machine.nvidia, "rocm": machine.amd, "xpu": machine.intel}.get(
        machine.platform
    )

    def version(name: str) -> str | None:
        package = machine.packages.get(name)
        return package.version if package else None

    return Versions(
        torch=version("torch"), triton=version("triton"), driver=vendor.driver if vendor else None
    )


def shape_of(layer: Layer) -> Shape:
    """The shape under which a layer's timings are kept."""
    return Shape(
        op=layer.op or "none",
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        head_size=layer.head_size,
        head_size_v=layer.head_size_v,
        dtype=layer.dtype,
        kv_cache_dtype=layer.kv_cache_dtype,
        features=layer.features,
    )
