"""What of a profile's timings can be had in a plan: those whose knobs and kernel are here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from importlib.util import find_spec

import msgspec

from attnctl.exits import InputError
from attnctl.profile.blocks import defaults_of
from attnctl.profile.merge import without
from attnctl.profile.values import Point, Profile, Shape, Timing
from attnctl.registry import Registry
from attnctl.runtime import open_backend
from attnctl.tune.settings import Knob, tuned

RIVALS = "attnctl.kernels.rivals"


def applicable(
    profile: Profile | None, shape: Shape, eligible: Collection[str], registry: Registry
) -> tuple[Profile | None, tuple[str, ...]]:
    """The profile less the timings of a shape that no batch could be run with; a note of each.

    One that asks for a knob of another version, or for a package that cannot be loaded, is a miss
    as a broken entry is, and never an error of the batch that it would have served. What the
    backend's defaults took there stands for it, if they were timed on the same blocks.
    """
    entry = (
        next((e for e in profile.entries if e.shape.full == shape.full), None) if profile else None
    )
    if profile is None or entry is None:
        return profile, ()
    lacks: dict[tuple[object, ...], str] = {}
    missed: Counter[tuple[str, str]] = Counter()

    def kept(point: Point) -> Point:
        gone, plain = set(), []
        for timing in point.timings:
            if timing.backend in eligible and (why := _lack(timing, shape, registry, lacks)):
                missed[timing.backend, why] += 1
                gone.add(timing.backend)
                usual = defaults_of(timing)
                plain += [usual] if usual and usual.block_size == timing.block_size else []
        left = without(point, gone)
        return msgspec.structs.replace(left, timings=(*left.timings, *plain)) if plain else left

    points = tuple(kept(point) for point in entry.points)
    if not missed:
        return profile, ()
    changed = msgspec.structs.replace(entry, points=points)
    entries = tuple(changed if one is entry else one for one in profile.entries)
    notes = tuple(
        f"{count} of the profile's timings of {name} {'is' if count == 1 else 'are'} passed over: "
        f"{why}"
        for (name, why), count in missed.items()
    )
    return msgspec.structs.replace(profile, entries=entries), notes


def lack_of(
    backend: str,
    knobs: Mapping[str, Knob],
    kernel: str,
    registry: Registry,
    shape: Shape | None = None,
) -> str:
    """Why a backend cannot run with these knobs and this kernel here; "" where it can.

    shape: of the layers, where what they demand decides which package serves.
    """
    if not knobs and not kernel:
        return ""
    try:
        runtime = tuned(open_backend(backend, registry), knobs, kernel)
    except InputError as error:
        return str(error)
    except ImportError:  # it is left out for that, and not for its knobs
        return ""
    if kernel and _is_rival(kernel) and find_spec(kernel) is None:
        return f"{backend}: its kernel {kernel} is a package that is not installed"
    # FlashAttention's versions are of several packages, of which only loading tells whether they do
    asked = getattr(runtime, "lack", None) if kernel else None
    return "" if asked is None else str(asked(sinks="sinks" in shape.features if shape else False))


def _lack(
    timing: Timing, shape: Shape, registry: Registry, lacks: dict[tuple[object, ...], str]
) -> str:
    """Each setting is tried once."""
    key = timing.backend, timing.kernel, *sorted(timing.knobs.items())
    if key not in lacks:
        lacks[key] = lack_of(timing.backend, timing.knobs, timing.kernel, registry, shape)
    return lacks[key]


def _is_rival(kernel: str) -> bool:
    """Whether the kernel is another package's, told by its name."""
    return kernel.isidentifier() and find_spec(f"{RIVALS}.{kernel}") is not None
