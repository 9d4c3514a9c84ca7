"""What may be tuned in a runtime, and how a profile's knobs are applied to it. No torch.

A runtime with knobs has two methods (the protocol Tunable):

    settings(work, limits)        every valid setting at one point, the bundled default first
    with_knobs(knobs, kernel)     the same runtime with these knobs, to be called as ever

A knob has a flat name and a number, a word or a truth value: {"decode.keys": 128, "fill": 2}. A
profile keeps only what differs from the bundled defaults, so that {} is the default everywhere.
The name "block_size" is the cache's, which the caller lays out: runtimes accept and ignore it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.nearest import did_you_mean
from attnctl.profile.ranking import BLOCK_SIZE as BLOCK_SIZE

Knob: TypeAlias = "int | str | bool"
Knobs: TypeAlias = "dict[str, int | str | bool]"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One layer at one workload point: B = batch sequences of S = context tokens, query new each.

    page: tokens in a block of the cache; 0 where a state is kept instead.
    """

    layer: Layer
    phase: str
    batch: int
    context: int
    query: int
    page: int = 0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a device has room for. units: multiprocessors, compute units or cores.

    arch as compilers name it; shared_memory_bytes of one block; threads of a processor.
    """

    arch: str
    units: int
    shared_memory_bytes: int = 0
    threads: int = 1


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What a setting makes of the work: bytes moved, operations with padding, programs launched."""

    bytes: float
    flops: float
    programs: int


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a backend. kernel: the rival kernel, "" for the only or the usual one.

    effort: for the cost model, where the runtime can tell.
    """

    knobs: Knobs = {}
    kernel: str = ""
    effort: Effort | None = None

    def __str__(self) -> str:
        words = [f"{name}={_shown(value)}" for name, value in self.knobs.items()]
        return " ".join(([self.kernel] if self.kernel else []) + words) or "the defaults"


@runtime_checkable
class Tunable(Protocol):
    """A runtime that may be tuned."""

    def settings(self, work: Work, limits: Limits) -> Sequence[Setting]:
        """The default first, then every other that fits the device; no two launch the same."""

    def with_knobs(self, knobs: Mapping[str, Knob], kernel: str = "") -> Any:
        """This runtime with these knobs. InputError: a knob or a kernel that it does not have."""


def settings_of(runtime: Any, work: Work, limits: Limits) -> tuple[Setting, ...]:
    """Every setting of a runtime at one point; the default alone where nothing may be tuned."""
    if not isinstance(runtime, Tunable):
        return (Setting(),)
    return tuple(runtime.settings(work, limits))


def tuned(runtime: Any, knobs: Mapping[str, Knob], kernel: str = "") -> Any:
    """The runtime with a profile's knobs. InputError: it has no such knob or kernel."""
    if not knobs and not kernel:
        return runtime
    if not isinstance(runtime, Tunable):
        if set(knobs) <= {BLOCK_SIZE} and not kernel:
            return runtime
        named = ", ".join([*knobs, *([f"kernel {kernel}"] if kernel else [])])
        raise InputError(f"{runtime.get_name()}: it has no knobs; the profile sets {named}")
    return runtime.with_knobs(knobs, kernel)


def check_knobs(name: str, knobs: Mapping[str, Knob], known: Mapping[str, Knob]) -> Knobs:
    """The knobs of one backend, less the cache's own.

    known: knob -> a value of its type. InputError: one is unknown, or of another type.
    """
    found: Knobs = {}
    for knob, value in knobs.items():
        if knob == BLOCK_SIZE:
            continue
        if knob not in known:
            hint = did_you_mean(knob, known) or f" It has {', '.join(known)}."
            raise InputError(f"{name}: no knob {knob!r}.{hint}")
        if type(value) is not type(known[knob]):
            wanted = type(known[knob]).__name__
            raise InputError(f"{name}: knob {knob} must be {wanted}, found {value!r}")
        found[knob] = value
    return found


def refuse_kernel(name: str, kernel: str, known: Sequence[str] = ()) -> None:
    """InputError: a backend has no kernel of that name."""
    if kernel and kernel not in known:
        have = f"its kernels are {', '.join(known)}" if known else "it has one kernel"
        raise InputError(f"{name}: no kernel {kernel!r}; {have}")


def _shown(value: Knob) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
