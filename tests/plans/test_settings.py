"""A profile's settings that this installation has not: a miss with a note, and no error."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

import attnctl
from attnctl.exits import InputError
from attnctl.kernels.paged.flash_runtime import FlashAttention
from attnctl.layer import Options, layer_of
from attnctl.model import read_model
from attnctl.plans.settings import applicable, lack_of
from attnctl.profile.document import key_of, shape_of, versions_of
from attnctl.profile.values import Entry, Point, Profile, Rejected, Shape, Timing
from attnctl.registry import Registry, load
from tests.adapters import fakes
from tests.commands.running import LLAMA, MODELS
from tests.profile.factory import machine

HERE = machine("zen3")


def shape(config: Any = LLAMA) -> Shape:
    spec = read_model(config)
    return shape_of(layer_of(spec, spec.groups[0], Options()))


def profile(*points: Timing, of: Shape | None = None) -> Profile:
    """One point for each of these timings, at contexts far from each other."""
    made = tuple(
        Point(
            phase="decode",
            batch=1,
            context=64 * 32**place,
            timings=(timing,),
            rejected=(Rejected(backend=timing.backend, why="pruned"),),
        )
        for place, timing in enumerate(points)
    )
    entry = Entry(shape=of or shape(), points=made)
    return Profile(name="p", key=key_of(HERE, None), entries=(entry,))


def cpu(**knobs: Any) -> Timing:
    return Timing(backend="CPU_ATTN", median_us=9.0, knobs=knobs)


@pytest.mark.parametrize(
    ("timing", "says"),
    [
        (cpu(no_such=1), "no knob 'no_such'"),
        (cpu(threads=-4), "knob threads is -4: must be from 1"),
        (cpu(threads=10**18), "must be from 1"),
        (cpu(threads="many"), "must be int"),
        (msgspec.structs.replace(cpu(), kernel="no_such"), "no kernel 'no_such'"),
    ],
)
def test_a_setting_that_is_not_here_is_a_miss_with_one_note(timing: Timing, says: str) -> None:
    """Its point gives the defaults, another point its own; a batch of either is served."""
    plan = attnctl.plan(LLAMA, HERE, profile=profile(timing, cpu(threads=1), timing))
    layer = plan[0]
    picks = [layer.pick(1, context, 1) for context in (64, 64 * 32, 64 * 32 * 32)]
    assert [pick.evidence for pick in picks] == ["default", "measured", "default"]
    assert [dict(pick.knobs) for pick in picks] == [{}, {"threads": 1}, {}]
    (note,) = [note for note in plan.notes if "passed over" in note]
    assert note.startswith("2 of the profile's timings of CPU_ATTN are passed over: ")
    assert says in note


def test_what_can_be_run_is_left_as_it_is() -> None:
    """The very profile, and no note."""
    whole = profile(cpu(), cpu(threads=2, block_size=64))
    assert applicable(whole, shape(), ("CPU_ATTN",), load()) == (whole, ())
    assert applicable(whole, shape(), (), load())[0] is whole
    assert applicable(None, shape(), ("CPU_ATTN",), load()) == (None, ())
    other = msgspec.structs.replace(shape(), heads=7)
    assert applicable(profile(cpu(no_such=1)), other, ("CPU_ATTN",), load())[1] == ()


def test_a_backend_whose_timing_is_a_miss_is_not_out_of_the_running() -> None:
    """What was rejected of it goes too: it must not be taken for one that gave no time."""
    found, _ = applicable(profile(cpu(no_such=1)), shape(), ("CPU_ATTN",), load())
    assert found is not None
    (point,) = found.entries[0].points
    assert (point.timings, point.rejected) == ((), ())


@pytest.mark.parametrize("kernel", ["fla", "flashinfer", "mamba_ssm", "causal_conv1d"])
def test_a_kernel_whose_package_is_missing_is_named(kernel: str) -> None:
    """A profile of a machine that has it, on one that has not."""
    missing = importlib.util.find_spec(kernel) is None
    op = {"mamba_ssm": "MAMBA2_ATTN", "causal_conv1d": "SHORT_CONV_ATTN"}.get(kernel, "GDN_ATTN")
    found = lack_of(op, {}, kernel, load())
    assert found == (
        f"{op}: its kernel {kernel} is a package that is not installed" if missing else ""
    )


def test_a_state_layer_runs_with_the_bundled_kernel_where_the_profiles_is_missing() -> None:
    """GDN_ATTN timed with fla, which the tests' environment has not."""
    config = MODELS / "qwen3-next-80b-a3b.json"
    spec = read_model(config)
    (group,) = [group for group in spec.groups if group.kind == "gdn"]
    of = shape_of(layer_of(spec, group, Options()))
    timed = Timing(backend="GDN_ATTN", median_us=9.0, kernel="fla")
    plan = attnctl.plan(config, HERE, profile=profile(timed, of=of))
    layer = plan[group.layers[0]]
    if importlib.util.find_spec("fla") is None:
        assert layer.pick(1, 64, 1).kernel == ""
        assert any("its kernel fla is a package that is not" in note for note in plan.notes)
    else:
        assert layer.pick(1, 64, 1).kernel == "fla"


def test_a_backend_that_is_not_there_is_no_setting_of_anything() -> None:
    """Names of a profile are looked up among the eligible ones alone."""
    gone = Timing(backend="NO_SUCH", median_us=1.0, knobs={"a": 1})
    assert applicable(profile(gone), shape(), ("CPU_ATTN",), load())[1] == ()
    with pytest.raises(InputError):
        attnctl.open_backend("NO_SUCH")


FLASH = "FLASH_ATTN"
H200 = machine("h200")


@pytest.fixture
def only_fa3() -> Iterator[Registry]:
    """A registry of FLASH_ATTN alone, where FlashAttention 3 is all that can be loaded."""
    kernel = ModuleType("only_fa3.kernel")
    only = FlashAttention(FLASH, fakes.loader(flash_attn_interface=fakes.fa3()))
    kernel.RUNTIME = only
    sys.modules["only_fa3"], sys.modules["only_fa3.kernel"] = ModuleType("only_fa3"), kernel
    own = load().get(FLASH)
    assert own is not None
    yield Registry((msgspec.structs.replace(own, module="only_fa3"),))
    del sys.modules["only_fa3"], sys.modules["only_fa3.kernel"]


def opened(registry: Registry, *timings: Timing) -> attnctl.Plan:
    """The plan of Llama on an H200."""
    key, versions = key_of(H200, H200.gpus[0]), versions_of(H200)
    made = msgspec.structs.replace(profile(*timings), key=key, versions=versions)
    return attnctl.plan(LLAMA, H200, profile=made, registry=registry)


def flash(kernel: str, **more: Any) -> Timing:
    return Timing(backend=FLASH, median_us=9.0, kernel=kernel, **more)


def test_a_kernel_that_cannot_be_loaded_is_found_when_the_plan_is_opened(
    only_fa3: Registry,
) -> None:
    """Not at the first batch that it would have served; one note says why, of both points."""
    plan = opened(only_fa3, flash("fa4"), flash("fa3"), flash("fa4"))
    picks = [plan[0].pick(1, context, 1) for context in (64, 64 * 32, 64 * 32 * 32)]
    assert [(pick.kernel, pick.evidence) for pick in picks] == [
        ("", "default"),
        ("fa3", "measured"),
        ("", "default"),
    ]
    (note,) = [note for note in plan.notes if "passed over" in note]
    assert note.startswith("2 of the profile's timings of FLASH_ATTN are passed over: FLASH_ATTN: ")
    assert "FlashAttention cannot be loaded: FA4: flash_attn.cute: " in note


def test_what_the_defaults_took_stands_for_a_setting_that_cannot_be_had(only_fa3: Registry) -> None:
    """Where it was on the same blocks of the cache; on others nothing is known."""
    pick = opened(only_fa3, flash("fa4", default_us=12.0))[0].pick(1, 64, 1)
    assert (pick.kernel, pick.evidence, pick.time_us) == ("", "measured", 12.0)
    wide = flash("fa4", knobs={"block_size": 128}, default_us=12.0)
    assert opened(only_fa3, wide)[0].pick(1, 64, 1).evidence == "default"
    fixed = opened(only_fa3, msgspec.structs.replace(wide, default_block=128))[0]
    assert (fixed.pick(1, 64, 1).time_us, fixed.block_size) == (12.0, 128)
