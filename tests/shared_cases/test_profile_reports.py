"""Field reports about tuned files that were not found, went stale, flickered or came too late."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from attnctl.layer import Options, layer_of
from attnctl.machine import Cpu, Gpu, Machine, Package, Vendor
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import shape_of
from attnctl.profile.keys import Key, Versions
from attnctl.profile.live import live
from attnctl.profile.match import match
from attnctl.profile.ranking import pick_of
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements import operation
from attnctl.select import select
from tests.layer_factory import group
from tests.shared_cases.reports import report

LAYERS = group()
SPEC = ModelSpec(model_type="invented", groups=(LAYERS,), dtype="bfloat16")
LAYER = layer_of(SPEC, LAYERS, Options())


def machine(gpu: Gpu, driver: str | None = None, **versions: str | None) -> Machine:
    """A box with this AMD GPU and these versions; one that is "unknown" could not be told."""
    packages = {
        name: Package(status="ok", source="t", version=None if v == "unknown" else v)
        for name, v in versions.items()
    }
    amd = Vendor(status="ok", driver=driver, gpus=(gpu,))
    return Machine(name="m", amd=amd, cpu=Cpu(), packages=packages)


@pytest.mark.parametrize("place", range(3))
def test_a_profile_is_found_by_what_the_hardware_is(place: int) -> None:
    """D01: another image calls the card by another name; the key has no name in it."""
    case = report("D01")
    given, wanted = case["input"], case["expected"]["match"][place]
    arch, pci_id = given["arch"][place], f"1002:{given['pci_id'][place]}"
    name = given["running_device"][place]
    assert name != given["profile_device"][place]
    key = Key(vendor="amd", arch=arch, pci_id=pci_id, unit_count=64)
    timed = Profile(name=given["profile_device"][place], key=key)
    gpu = Gpu(index=0, name=name, arch=arch, pci_id=pci_id, unit_count=64)
    assert match(timed, machine(gpu), gpu).status == "valid"
    other = msgspec.structs.replace(gpu, pci_id="1002:ffff", name=given["profile_device"][place])
    assert match(timed, machine(other), other).status == "foreign"
    assert wanted in (True, "by arch+pci id only, name ignored")


@pytest.mark.parametrize("place", range(4))
def test_what_changed_decides_what_becomes_of_a_profile(place: int) -> None:
    """D03: a compiler makes it stale, a kernel dead, a driver a note, an unknown version stale."""
    case = report("D03")
    stated, now = case["input"]["profile"], case["input"]["now"][place]
    wanted = case["expected"]["status"][place]
    key = Key(vendor="amd", arch="gfx942", pci_id="1002:74a2", unit_count=80)
    point = Point(
        phase="decode", batch=1, context=1024, timings=(Timing(backend="B", median_us=1.0),)
    )
    entry = Entry(
        shape=shape_of(LAYER), points=(point,), kernels={"B": stated["kernel_source_hash"]}
    )
    versions = Versions(**{name: stated[name] for name in ("torch", "triton", "driver")})
    timed = Profile(name="p", key=key, versions=versions, entries=(entry,))
    gpu = Gpu(index=0, arch="gfx942", pci_id="1002:74a2", unit_count=80)
    here = machine(
        gpu, now.get("driver", stated["driver"]), torch=stated["torch"], triton=now["triton"]
    )
    found = match(timed, here, gpu)
    hashed = now.get("kernel_source_hash", stated["kernel_source_hash"])
    alive, dead = live(timed, {"B": hashed})
    said = {
        "stale: compiler": ("stale", False, {"profile_version"}),
        "invalid: kernel changed": ("valid", True, set()),
        "usable, note driver change": ("valid", False, {"profile_driver"}),
        "indeterminate: re-tune on next run, do not lock the file": (
            "stale",
            False,
            {"profile_version"},
        ),
    }[wanted]
    unmet = {finding.code for finding in found.findings if not finding.met}
    assert (found.status, bool(dead), unmet) == said
    assert found.usable == case["expected"]["selection_part_still_valid"][place]
    assert bool(alive.entries) == (not dead)


def test_runs_that_differ_by_noise_pick_one_winner() -> None:
    """D04: the least time alone would have picked two."""
    case = report("D04")
    names = case["input"]["timings_us"]["configs"]
    picks, least = [], []
    for run in case["input"]["timings_us"]["runs"]:
        timings = tuple(Timing(backend=n, median_us=us) for n, us in zip(names, run, strict=True))
        picked = pick_of(Point(phase="decode", batch=1, context=1, timings=timings), names)
        assert picked is not None
        picks.append(picked.backend)
        least.append(min(timings, key=lambda timing: timing.median_us).backend)
    assert picks == [case["expected"]["winner_every_time"]] * len(picks)
    assert least == case["expected"]["naive_argmin"]


def test_measured_times_go_before_a_static_order() -> None:
    """D06: the second of the order was measured faster, and is never made eligible by that."""
    case = report("D06")
    one, other = case["input"]["registry_priority"]
    measured = case["input"]["measured_us"]
    points = tuple(
        Point(
            phase="decode",
            batch=int(name.removeprefix("decode_bs")),
            context=1024,
            timings=tuple(Timing(backend=b, median_us=measured[b][name]) for b in (one, other)),
        )
        for name in measured[one]
    )
    key = Key(vendor="amd", arch="gfx942")
    timed = Profile(name="p", key=key, entries=(Entry(shape=shape_of(LAYER), points=points),))
    box = machine(Gpu(index=0, arch="gfx942"))

    def picked(profile: Profile | None, op: str = "paged") -> Any:
        backends = tuple(
            Backend(
                name=name,
                summary="s",
                ops=("paged",),
                rules=(operation("paged" if name == one else op),),
                ranks=(Rank(platform="rocm", place=place),),
                kernel="bundled",
            )
            for place, name in enumerate((one, other), start=1)
        )
        return select(LAYER, box, Registry(backends), profile=profile).pick

    assert picked(None).name == case["expected"]["without_profile"]
    with_profile = picked(timed)
    assert with_profile.name == case["expected"]["with_profile"]
    ratios = [measured[other][name] / measured[one][name] for name in measured[one]]
    assert all(f"{ratio:.2f}x at decode" in with_profile.why for ratio in ratios)
    assert with_profile.why.startswith(f"{other} over {one}: ")
    assert picked(timed, op="mla").name == one
