"""Launches that are kept on any device and written down, and the judgement of an argument."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
import triton
from torch import Tensor

from attnctl.kernels.triton.launch import Launch
from attnctl.kernels.triton.relaunch import Relaunches, form_of


class Binary(triton.compiler.CompiledKernel):
    """What Triton gives of a launch: called with every argument in its place."""

    def __init__(self, launch: Launch, log: list[Any], interpreted: bool) -> None:
        self.launch, self.log, self.interpreted = launch, log, interpreted

    def __getitem__(self, grid: Any) -> Any:
        def run(*values: Any) -> None:
            self.log.append((grid, values))
            if self.interpreted:
                self.launch.kernel[grid](*values)

        return run


class Kept(Relaunches):
    """Launches kept on any device, each written down; run where Triton interprets them."""

    def __init__(self, most: int = 512, interpreted: bool = True) -> None:
        super().__init__(most)
        self.made: list[Launch] = []
        self.again: list[Any] = []
        self.current: Hashable = None
        self.interpreted = interpreted

    def place(self, tensor: Tensor) -> int:
        return 0

    def stream(self, device: torch.device) -> Hashable:
        return self.current

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
