"""Calls of a compiled Triton kernel without what Triton works out again for each of them.

Its launcher encodes every tensor descriptor anew, in Python, and calls hooks that nobody has set.
Triton's own way is taken for whatever does not look as in the versions that this was written for.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import triton
from torch import Tensor

from attnctl.kernels.triton.descriptors import based_on

MAPS = 128
"""Encoded descriptors that are kept of one kind, 256 bytes each: as many as a model has layers."""

Grid = tuple[int, int, int]


class Encoder(NamedTuple):
    """Descriptors of one kind by their tensor's address, on which nothing else of them depends.

    None is ever out of date: the address, and what all of a kind share, is all that is encoded.
    behind: the arguments that follow a descriptor.
    """

    box: Any
    encode: Callable[[Any], Sequence[Any]]
    known: dict[int, Any]
    behind: tuple[Any, ...]

    def at(self, tensor: Tensor) -> Any:
        address = tensor.data_ptr()
        found = self.known.get(address)
        if found is None:
            if len(self.known) >= MAPS:
                self.known.clear()
            found = self.known[address] = self.encode(based_on(self.box, tensor))[0]
        return found


class Whole(NamedTuple):
    """A descriptor that Triton's launcher is left to encode, with all that follows."""

    box: Any
    behind: tuple[Any, ...] = ()

    def at(self, tensor: Tensor) -> Any:
        return based_on(self.box, tensor)


class Call(NamedTuple):
    """How a kernel is called. makers: of its descriptors, in their order."""

    binary: Any
    launcher: Any
    makers: tuple[Encoder | Whole, ...]

    def __call__(self, grid: Grid, stream: int, values: Sequence[Any]) -> None:
        binary, runtime, facts = self.binary, triton.knobs.runtime, None
        before, after = runtime.launch_enter_hook, runtime.launch_exit_hook
        if _is_empty(before) and _is_empty(after):
            before = after = None
        else:
            facts = binary.launch_metadata(grid, stream)
        self.launcher(
            *grid, stream, binary.function, binary.packed_metadata, facts, before, after, *values
        )


class Bare(NamedTuple):
    """Triton's launcher for encoded descriptors, what encodes one, and how each is to be."""

    launcher: Any
    encode: Callable[[Any, Any], Sequence[Any]]
    metas: Sequence[Any]


class Calls:
    """How binaries are called, and the encoded descriptors that their calls share."""

    def __init__(self) -> None:
        self._bare: dict[int, tuple[Any, Bare | None]] = {}
        self._encoders: dict[Hashable, Encoder] = {}

    def of(self, binary: Any, boxes: Sequence[Any]) -> Call:
        """The call of a binary whose descriptor arguments are like these."""
        if not boxes:
            return Call(binary, binary.run, ())
        # beside its number the binary itself, so that no other one gets that
        known = self._bare.get(id(binary))
        if known is None:
            known = self._bare[id(binary)] = binary, bare_launcher(binary.run, len(boxes))
        bare = known[1]
        if bare is None:
            return Call(binary, binary.run, tuple(Whole(based_on(box, None)) for box in boxes))
        pairs = zip(boxes, bare.metas, strict=True)
        makers = tuple(self._encoder(bare, box, meta) for box, meta in pairs)
        return Call(binary, bare.launcher, makers)

    def _encoder(self, bare: Bare, box: Any, meta: Any) -> Encoder:
        kind = id(meta), tuple(box.shape), tuple(box.strides)
        found = self._encoders.get(kind)
        if found is None:
            first, *behind = bare.encode(box, meta)
            known = {box.base.data_ptr(): first}
            encode = partial(_swapped, bare.encode, meta)
            found = Encoder(based_on(box, None), encode, known, tuple(behind))
            self._encoders[kind] = found
        return found


def bare_launcher(run: Any, boxes: int) -> Bare | None:
    """What lies within Triton's launcher, None where it is built otherwise."""
    launch = getattr(run, "launch", None)
    if not inspect.isfunction(launch):
        return None
    around = inspect.getclosurevars(launch)
    names = {**around.globals, **around.nonlocals}
    inner, metas = names.get("launcher"), names.get("tensordesc_meta")
    encode = names.get("make_tensordesc_arg")
    if not callable(inner) or not inspect.isfunction(encode) or not isinstance(metas, list):
        return None
    if len(inspect.signature(encode).parameters) != 2 or len(metas) != boxes or not all(metas):
        return None
    bare = copy.copy(run)
    bare.launch = inner
    return Bare(bare, encode, metas)


def _swapped(encode: Callable[..., Any], meta: Any, box: Any) -> Any:
    return encode(box, meta)


def _is_empty(hook: Any) -> bool:
    return hook is None or getattr(hook, "calls", None) == []
