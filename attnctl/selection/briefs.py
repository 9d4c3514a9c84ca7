"""The machine, model and profile of an answer, in brief: what it was asked about."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from attnctl.findings import Finding
from attnctl.machine import Machine, Platform
from attnctl.model.spec import ModelSpec, Tower


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The device that was selected for; index: its logical index, None on a CPU."""

    index: int | None
    name: str | None
    arch: str | None
    unit_count: int | None
    memory_bytes: int | None


class MachineBrief(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    origin: str
    platform: Platform
    device: Device
    device_count: int


class ConfigKeys(msgspec.Struct, frozen=True):
    """Key paths of config.json that decided something, had no bearing, or are not known here."""

    used: tuple[str, ...]
    ignored: tuple[str, ...]
    unknown: tuple[str, ...]


class ModelBrief(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration said, but for its layers, which stand in the groups."""

    model_type: str | None
    architecture: str | None
    path: str
    text_config_path: str
    layers: int
    dtype: str | None
    dtype_source: str
    kv_cache_dtype_from_checkpoint: str | None
    max_position: int | None
    vision: Tower | None
    audio: Tower | None
    notes: tuple[str, ...]
    config: ConfigKeys


class ProfileBrief(msgspec.Struct, frozen=True, kw_only=True):
    """One profile that was looked at, and how it fits the device.

    origin: named by --profile or ATTNCTL_PROFILE, the user's own, or bundled. status: valid and
    stale ones are used, but for shapes that one before them holds; foreign and damaged ones are
    not. used: it decided about some shape that was asked about. dead: timings left out because
    their kernel's source has changed, each in one sentence. error: why it does not read.
    """

    name: str
    origin: Literal["option", "environment", "user", "bundled"]
    path: str
    measured: str = ""
    status: Literal["valid", "stale", "foreign", "damaged"]
    used: bool = False
    findings: tuple[Finding, ...] = ()
    bad_entries: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    error: str = ""


def brief_machine(machine: Machine, index: int) -> MachineBrief:
    """The device that was selected for, and where its facts came from."""
    gpus = machine.gpus
    if not gpus:
        cpu = machine.cpu
        memory = cpu.memory_limit_bytes or cpu.memory_total_bytes
        name = cpu.model or cpu.microarchitecture or cpu.arch
        device = Device(
            index=None,
            name=name,
            arch=cpu.isa_level or cpu.arch,
            unit_count=cpu.usable or cpu.cores,
            memory_bytes=memory,
        )
    else:
        gpu = gpus[index]
        device = Device(
            index=index,
            name=gpu.name,
            arch=gpu.arch,
            unit_count=gpu.unit_count,
            memory_bytes=gpu.memory.total_bytes,
        )
    return MachineBrief(
        name=machine.name,
        origin=machine.origin,
        platform=machine.platform,
        device=device,
        device_count=len(gpus) or 1,
    )


def _depth(spec: ModelSpec) -> int:
    """How many layers it has: one that does two things is in two groups, and counts once."""
    stacks: dict[tuple[str | None, int], Counter[str]] = {}
    for group in spec.groups:
        caches = group.notes.get("caches_per_layer", 1)
        for layer in {place // caches for place in group.layers}:
            stacks.setdefault((group.stack, layer), Counter())[group.kind] += 1
    # of two groups of one kind each is a tower of its own
    return sum(max(kinds.values()) for kinds in stacks.values())


def brief_model(spec: ModelSpec) -> ModelBrief:
    """What the configuration said of the model as a whole."""
    return ModelBrief(
        model_type=spec.model_type,
        architecture=spec.architecture,
        path=spec.path,
        text_config_path=spec.text_config_path,
        layers=_depth(spec),
        dtype=spec.dtype,
        dtype_source=spec.dtype_source,
        kv_cache_dtype_from_checkpoint=spec.kv_cache_dtype_from_checkpoint,
        max_position=spec.max_position,
        vision=spec.vision,
        audio=spec.audio,
        notes=spec.notes,
        config=ConfigKeys(spec.used, spec.ignored, spec.unknown),
    )
