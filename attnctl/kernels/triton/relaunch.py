"""Launches that are kept: a batch of a known form is launched without working anything out again.

Plans, strides, descriptors and Triton's choice of a binary follow from shapes, strides, dtypes and
alignment, which a model's layers share, and take a host longer than a short prompt takes a GPU.
What came of them is kept by form, without the tensors: nothing is held in memory, and a tensor at
another address is simply the one that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from attnctl.kernels.triton.descriptors import based_on
from attnctl.kernels.triton.launch import Launch

FORMS = 512
"""Forms that are kept, a few kilobytes each: beyond it all are dropped. A decoding batch with exact
bounds makes one a step."""

PLAIN = (int, float, str)
"""What an argument is that stays with its form; all others are tensors and descriptors of them."""

Tensors = tuple[Tensor | None, ...]


class Ready(NamedTuple):
    """A launch whose binary is known. values: its arguments, None where a tensor goes.

    tensors, boxes: argument and place among a call's tensors, and a descriptor without its tensor.
    """

    binary: Any
    grid: tuple[int, int, int]
    values: list[Any]
    tensors: tuple[tuple[int, int], ...]
    boxes: tuple[tuple[int, int, Any], ...]

    def run(self, tensors: Tensors) -> None:
        values = self.values.copy()
        for at, place in self.tensors:
            values[at] = tensors[place]
        for at, place, box in self.boxes:
            values[at] = based_on(box, tensors[place])
        self.binary[self.grid](*values)


class Known(NamedTuple):
    """A form's launches and the scratch memory that each call needs of its own."""

    launches: tuple[Ready, ...]
    floats: int
    counted: bool


class Scratch:
    """The memory that one call's launches pass on among themselves, and what of it was asked for.

    counts: zeros [2] int32 that the kernel leaves as zeros.
    """

    def __init__(self, device: torch.device, counts: Callable[[torch.device], Tensor]) -> None:
        self._device = device
        self._counts = counts
        self.workspace: Tensor | None = None
        self.counted: Tensor | None = None

    def floats(self, elements: int) -> Tensor:
        self.workspace = torch.empty(elements, dtype=torch.float32, device=self._device)
        return self.workspace

    def counts(self) -> Tensor:
        self.counted = self._counts(self._device)
        return self.counted


class Relaunches:
    """The launches kept for one runtime, and the counters of its persistent kernels."""

    def __init__(self, most: int = FORMS) -> None:
        self._most = most
        self._known: dict[Hashable, Known] = {}
        self._counts: dict[Hashable, Tensor] = {}

    def place(self, tensor: Tensor) -> int | None:
        """The device that a form begins with; None where a tensor's launches are not kept.

        They are for NVIDIA's current device. AMD's binaries depend on more than a form says (how
        large a tensor's storage is).
        """
        if not tensor.is_cuda or torch.version.hip:
            return None
        index = tensor.get_device()
        return index if index == torch.cuda.current_device() else None

    def run(
        self, form: Hashable, tensors: Tensors, make: Callable[[Scratch], list[Launch]]
    ) -> None:
        """Runs a form's launches over these tensors. make: gives them where they are not known.

        form: all that the launches depend on, form_of() each tensor included. The first tensor says
        where scratch memory lies.
        """
        first = tensors[0]
        assert first is not None
        scratch = Scratch(first.device, self.counts)
        known = self._known.get(form)
        if known is not None:
            floats = scratch.floats(known.floats) if known.floats else None
            whole = (*tensors, floats, scratch.counts() if known.counted else None)
            for one in known.launches:
                one.run(whole)
            return
        launches = make(scratch)
        binaries = [self.first(one) for one in launches]
        whole = (*tensors, scratch.workspace, scratch.counted)
        ready = [ready_of(*pair, whole) for pair in zip(launches, binaries, strict=True)]
        kept = tuple(one for one in ready if one is not None)
        if len(kept) == len(ready):
            if len(self._known) >= self._most:
                self._known.clear()
            floats = 0 if scratch.workspace is None else scratch.workspace.numel()
            self._known[form] = Known(kept, floats, scratch.counted is not None)

    def first(self, launch: Launch) -> Any:
        """Runs a launch through Triton's own choice of a binary, which it gives."""
        return launch.kernel[launch.grid](*launch.arguments, **launch.constants)

    def counts(self, device: torch.device) -> Tensor:
        """Two zeros [2] int32 on the device, which the kernel that gets them leaves as zeros.

        A stream runs one kernel at a time, so that its kernels share them. What a CUDA graph holds
        may be replayed beside any stream: it gets its own.
        """
        stream = self.stream(device)
        if stream is None:
            return new_counts(device)
        found = self._counts.get(stream)
        if found is None:
            if len(self._counts) >= self._most:
                # their memory goes back to their own streams, behind the kernels there
                self._counts.clear()
            found = self._counts[stream] = new_counts(device)
        return found

    def stream(self, device: torch.device) -> Hashable:
        """The device's current stream; None where it is captured, or not NVIDIA's."""
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        return device.index, torch.cuda.current_stream(device).cuda_stream


def new_counts(device: torch.device) -> Tensor:
    """Two zeros [2] int32."""
    return torch.zeros(2, dtype=torch.int32, device=device)


def form_of(tensor: Tensor | None) -> Hashable:
    """What of a tensor a launch depends on."""
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.data_ptr() % 16


def ready_of(launch: Launch, binary: Any, tensors: Tensors) -> Ready | None:
    """A launch without its tensors; None where it holds others, or was interpreted."""
    if not isinstance(binary, triton.compiler.CompiledKernel):
        return None
    names = launch.kernel.arg_names
    given = dict(zip(names, launch.arguments, strict=False)) | launch.constants
    values = [given[name] for name in names]
    places = {id(one): place for place, one in enumerate(tensors) if one is not None}
    if len(places) < sum(one is not None for one in tensors):
        # one tensor in two places: which of them an argument is cannot be said
        return None
    plain, boxes = [], []
    for at, value in enumerate(values):
        if value is None or isinstance(value, PLAIN):
            continue
        box = not isinstance(value, Tensor)
        place = places.get(id(value.base if box else value))
        if place is None:
            return None
        values[at] = None
        if box:
            boxes.append((at, place, based_on(value, None)))
        else:
            plain.append((at, place))
    first, second, third = (*launch.grid, 1, 1)[:3]
    return Ready(binary, (first, second, third), values, tuple(plain), tuple(boxes))
