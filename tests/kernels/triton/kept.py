"""Launches that are kept on any device and written down, and the judgement of an argument."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from attnctl.kernels.triton.launch import Launch
from attnctl.kernels.triton.relaunch import Relaunches, form_of


class Binary(triton.compiler.CompiledKernel):
    """What Triton gives of a launch, called with every argument in its place."""

    function, packed_metadata = 3, (4, 1, 0)

    def __init__(self, launch: Launch, log: list[Any], interpreted: bool) -> None:
        self.launch, self.log, self.interpreted = launch, log, interpreted

    def launch_metadata(self, grid: Any, stream: int, *arguments: Any) -> tuple[Any, int]:
        return grid, stream

    def run(self, x: int, y: int, z: int, stream: int, *rest: Any) -> None:
        function, packed, facts, before, after, *values = rest
        assert (function, packed) == (self.function, self.packed_metadata)
        assert facts is before is after is None
        self.log.append(((x, y, z), tuple(values), stream))
        if self.interpreted:
            self.launch.kernel[x, y, z](*values)


class Kept(Relaunches):
    """Launches kept on any device, each written down; run where Triton interprets them."""

    def __init__(self, most: int = 512, interpreted: bool = True) -> None:
        super().__init__(most)
        self.made: list[Launch] = []
        self.again: list[Any] = []
        self.current: int | None = 7
        self.interpreted = interpreted

    def place(self, tensor: Tensor) -> int:
        return 0

    def stream(self, index: int) -> int:
        return self.current or 0

    def captured(self) -> bool:
        return self.current is None

    def first(self, launch: Launch) -> Any:
        self.made.append(launch)
        if self.interpreted:
            launch.kernel[launch.grid](*launch.arguments, **launch.constants)
        return Binary(launch, self.again, self.interpreted)


def same(found: Any, wanted: Any, held: set[int]) -> None:
    """One argument; scratch memory is each call's own, of the same size."""
    if isinstance(wanted, Tensor):
        assert found is wanted or (id(wanted) not in held and form_of(found) == form_of(wanted))
    elif hasattr(wanted, "block_shape"):
        assert found.base is wanted.base
        assert type(found) is type(wanted)
        assert {**vars(found), "base": 0} == {**vars(wanted), "base": 0}
    else:
        assert found == wanted
        assert type(found) is type(wanted)
