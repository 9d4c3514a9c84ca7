"""A launch whose binary is known, without its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import triton
from torch import Tensor

from attnctl.kernels.triton.binary_call import Call, Grid
from attnctl.kernels.triton.launch import Launch

PLAIN = (int, float, str)
"""What an argument is that stays with its form; all others are tensors and descriptors of them."""

Tensors = tuple[Tensor | None, ...]


class Ready(NamedTuple):
    """values: the call's arguments, None where a tensor goes.

    tensors, boxes: argument and place among a call's tensors; of a box, what makes its descriptor.
    """

    call: Call
    grid: Grid
    values: list[Any]
    tensors: tuple[tuple[int, int], ...]
    boxes: tuple[tuple[int, int, Any], ...]

    def run(self, stream: int, tensors: Tensors) -> None:
        values = self.values.copy()
        for at, place in self.tensors:
            values[at] = tensors[place]
        for at, place, maker in self.boxes:
            values[at] = maker.at(tensors[place])
        self.call(self.grid, stream, values)


def ready_of(
    launch: Launch, binary: Any, tensors: Tensors, call_of: Callable[[Any, Sequence[Any]], Call]
) -> Ready | None:
    """A launch that was run over these tensors; None where it holds others, or was interpreted.

    call_of: how a binary with descriptors like these is called.
    """
    if not isinstance(binary, triton.compiler.CompiledKernel):
        return None
    names = launch.kernel.arg_names
    given = dict(zip(names, launch.arguments, strict=False)) | launch.constants
    values = [given[name] for name in names]
    places = {id(one): place for place, one in enumerate(tensors) if one is not None}
    if len(places) < sum(one is not None for one in tensors):
        # one tensor in two places: which of them an argument is cannot be said
        return None
    varying: dict[int, int] = {}
    boxes: dict[int, Any] = {}
    for at, value in enumerate(values):
        if value is None or isinstance(value, PLAIN):
            continue
        if not isinstance(value, Tensor):
            boxes[at] = value
        place = places.get(id(boxes[at].base if at in boxes else value))
        if place is None:
            return None
        varying[at] = place
    return _laid_out(call_of(binary, list(boxes.values())), launch.grid, values, varying, boxes)


def _laid_out(
    call: Call,
    grid: tuple[int, ...],
    given: list[Any],
    varying: dict[int, int],
    boxes: dict[int, Any],
) -> Ready:
    """Arguments as the call takes them. varying: places by argument."""
    values: list[Any] = []
    tensors, made = [], []
    makers = iter(call.makers)
    for at, value in enumerate(given):
        if at in boxes:
            maker = next(makers)
            made.append((len(values), varying[at], maker))
            values += [None, *maker.behind]
        elif at in varying:
            tensors.append((len(values), varying[at]))
            values.append(None)
        else:
            values.append(value)
    first, second, third = (*grid, 1, 1)[:3]
    return Ready(call, (first, second, third), values, tuple(tensors), tuple(made))
