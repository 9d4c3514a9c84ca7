"""Profiles of one layer shape with times of invented backends, B1 and B2 among them."""

from __future__ import annotations

from attnctl.layer import Options, layer_of
from attnctl.machine import Cpu, Gpu, Machine, Package, Vendor
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.profile import Entry, Key, Point, Profile, Rejected, Timing, shape_of
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements import head_sizes, operation

GROUP = LayerGroup(kind="full", layers=(0,), num_heads=8, num_kv_heads=2, head_size=64)
LAYER = layer_of(ModelSpec(model_type="m", groups=(GROUP,), dtype="bfloat16"), GROUP, Options())
KEY = Key(vendor="amd", arch="gfx942", pci_id="1002:74a2", unit_count=80)


def machine(name: str = "AMD Instinct MI308X", driver: str = "6.1", **versions: str) -> Machine:
    gpu = Gpu(index=0, name=name, arch="gfx942", pci_id="1002:74a2", unit_count=80)
    packages = {n: Package(status="ok", source="test", version=v) for n, v in versions.items()}
    amd = Vendor(status="ok", driver=driver, gpus=(gpu,))
    return Machine(name="m", amd=amd, cpu=Cpu(), packages=packages)


def profile(*timings: tuple[float, ...], names: tuple[str, ...], **more: object) -> Profile:
    points = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            timings=tuple(Timing(backend=n, median_us=t) for n, t in zip(names, row, strict=True)),
        )
        for batch, row in zip((1, 8, 64), timings, strict=False)
    )
    entry = Entry(shape=shape_of(LAYER), points=points, kernels=more.pop("kernels", {}))
    return Profile(name="p", key=KEY, entries=(entry,), measured="2026-08-01", **more)


def sparse(*points: dict[str, float], weight: float = 1.0) -> Profile:
    """A profile whose points time different backends."""
    made = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            weight=weight,
            timings=tuple(Timing(backend=name, median_us=us) for name, us in times.items()),
        )
        for batch, times in enumerate(points, start=1)
    )
    return Profile(name="p", key=KEY, entries=(Entry(shape=shape_of(LAYER), points=made),))


def backends(*, b2_heads: int = 64) -> Registry:
    def declare(name: str, place: int, heads: int) -> Backend:
        return Backend(
            name=name,
            summary="invented",
            ops=("paged",),
            rules=(operation("paged"), head_sizes(heads)),
            ranks=(Rank(platform="rocm", place=place),),
        )

    return Registry((declare("B1", 10, 64), declare("B2", 20, b2_heads)))


def failing(*rows: tuple[dict[str, float], str]) -> Profile:
    """A profile whose points time some backends, and at which others gave wrong results."""
    made = tuple(
        Point(
            phase="decode",
            batch=batch,
            context=1024,
            timings=tuple(Timing(backend=name, median_us=us) for name, us in times.items()),
            rejected=tuple(Rejected(backend=name, why="wrong") for name in wrong),
        )
        for batch, (times, wrong) in enumerate(rows, start=1)
    )
    return Profile(name="p", key=KEY, entries=(Entry(shape=shape_of(LAYER), points=made),))
