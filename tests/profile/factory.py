"""Profiles as a tune of a bundled machine would write them, with invented times."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnctl import machines
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.machines.assumed import assume
from attnctl.model import read_model
from attnctl.profile.document import key_of, shape_of, versions_of
from attnctl.profile.hashes import kernel_hashes
from attnctl.profile.values import Entry, Point, Profile, Rejected, Timing
from attnctl.registry import Registry, load
from attnctl.select import eligible_names, select
from tests.commands.running import MODELS

GRID = tuple(
    (phase, batch, context, query)
    for phase, query in (("decode", 1), ("prefill", 512))
    for batch in (1, 8, 64)
    for context in (1024, 8192, 65536)
)
DAY = "2026-11-20"


def machine(name: str = "h100") -> Machine:
    """A bundled machine with its usual packages."""
    return assume(machines.load(name), "usual", load()).machine


def layers(*models: str) -> list[Layer]:
    """The layers of models under tests/models that some backend serves."""
    specs = [read_model(MODELS / f"{name}.json") for name in models]
    found = [layer_of(spec, group, Options()) for spec in specs for group in spec.groups]
    return [layer for layer in found if layer.op is not None]


def profile(
    *models: str,
    on: str = "h100",
    name: str = "invented",
    measured: str = DAY,
    grid: Sequence[tuple[str, int, int, int]] = GRID,
    faster: dict[str, float] | None = None,
) -> Profile:
    """Each layer of these models (Llama 3.1 8B) at each point, for every backend eligible there.

    faster: backend -> a factor on its times, 1 where it is not named. Times rise with the work;
    how far backends lie apart depends on the point.
    """
    registry, box = load(), machine(on)
    gpu = box.gpus[0] if box.gpus else None
    entries = [
        _entry(layer, box, registry, grid, faster or {})
        for layer in layers(*(models or ("llama-3.1-8b",)))
    ]
    return Profile(
        name=name,
        key=key_of(box, gpu),
        versions=versions_of(box),
        measured=measured,
        memory_bytes=gpu.memory.total_bytes if gpu else None,
        conditions={"graph": "decode", "l2": "cold", "read_gbps": 2900.0, "matrix_gflops": 700e3},
        entries=tuple(entries),
    )


def _entry(
    layer: Layer,
    box: Machine,
    registry: Registry,
    grid: Sequence[tuple[str, int, int, int]],
    faster: dict[str, float],
) -> Entry:
    order = eligible_names(select(layer, box, registry))
    points = (
        Point(
            phase=phase,
            batch=batch,
            context=context,
            query=query,
            timings=tuple(_timings(order, faster, (phase, batch, context, query))),
            rejected=_rejected(order, batch),
        )
        for phase, batch, context, query in grid
    )
    hashes = kernel_hashes(registry, "gpu" if box.gpus else "cpu", order)
    return Entry(shape=shape_of(layer), points=tuple(points), kernels=hashes, order=order)


def _timings(
    order: Sequence[str], faster: dict[str, float], place: tuple[str, int, int, int]
) -> Iterator[Timing]:
    _, batch, context, query = place
    for name in order:
        # the same on every run and machine, and another for each backend and point
        share = 1 + zlib.crc32(f"{name} {place}".encode()) % 100 / 200
        memory_us = batch * context * 4096 / 2.9e6
        compute_us = batch * context * query * 16384 / 7e8
        time_us = (4 + max(memory_us, compute_us) * 1.1) * share * faster.get(name, 1.0)
        tuned = name.startswith("TRITON")
        yield Timing(
            backend=name,
            median_us=time_us,
            iqr_us=time_us * 0.01,
            runs=9,
            knobs={"segments": 32, "decode.warps": 8} if tuned else {},
            default_us=time_us * 1.2 if tuned else time_us,
            tried=40 if tuned else 1,
        )


def _rejected(order: Sequence[str], batch: int) -> tuple[Rejected, ...]:
    if "TRITON_ATTN" not in order or batch > 1:
        return ()
    return (
        Rejected(backend="TRITON_ATTN", knobs={"segments": 64}, why="wrong", detail="error 3x"),
        Rejected(backend="TRITON_ATTN", knobs={"decode.keys": 512}, why="pruned"),
    )


def write(path: Path, document: Profile) -> Path:
    """The file with this profile in its canonical form."""
    from attnctl.profile.canonical import encode

    path.write_bytes(encode(document))
    return path
