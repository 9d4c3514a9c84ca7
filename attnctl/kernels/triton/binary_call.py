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
    """

    box: Any
    encode: Callable[[Any], Sequence[Any]]
    known: dict[int, Any]

    def at(self, tensor: Tensor) -> Any:
        address = tensor.data_ptr()
        found = self.known.get(address)
        if found is None:
            if len(self.known) >= MAPS:
                self.known.clear()
            found = self.known[address] = self.encode(based_on(self.box, tensor))[0]
        return found


class Whole(NamedTuple):
    """A descriptor that Triton's launcher is left to encode."""

    box: Any

    def at(self, tensor: Tensor) -> Any:
        return based_on(self.box, tensor)


class Call(NamedTuple):
    """How a kernel is called. behind: the arguments that follow each of its descriptors."""

    binary: Any
    launcher: Any
    makers: tuple[Encoder | Whole, ...]
    behind: tuple[tuple[Any, ...], ...]

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


def call_of(binary: Any, boxes: Sequence[Any], encoders: dict[Hashable, Encoder]) -> Call:
    """How a binary is called whose descriptor arguments are like these.

    encoders: those that are known, to which new ones are added.
    """
    run = binary.run
    found = _bare(run, len(boxes)) if boxes else None
    if found is None:
        wholes = tuple(Whole(based_on(box, None)) for box in boxes)
        return Call(binary, run, wholes, ((),) * len(boxes))
    bare, encode, metas = found
    makers = tuple(
        _encoder(box, encode, meta, encoders) for box, meta in zip(boxes, metas, strict=True)
    )
    behind = (encode(*pair)[1:] for pair in zip(boxes, metas, strict=True))
    return Call(binary, bare, makers, tuple(map(tuple, behind)))


def _bare(run: Any, boxes: int) -> tuple[Any, Callable[..., Any], Sequence[Any]] | None:
    """Triton's launcher for encoded descriptors, what encodes one, and how each is to be."""
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
    return bare, encode, metas


def _encoder(
    box: Any, encode: Callable[..., Any], meta: Any, encoders: dict[Hashable, Encoder]
) -> Encoder:
    blank = based_on(box, None)
    kind = repr((blank, meta))
    if kind not in encoders:
        encoders[kind] = Encoder(blank, partial(_swapped, encode, meta), {})
    return encoders[kind]


def _swapped(encode: Callable[..., Any], meta: Any, box: Any) -> Any:
    return encode(box, meta)


def _is_empty(hook: Any) -> bool:
    return hook is None or getattr(hook, "calls", None) == []
