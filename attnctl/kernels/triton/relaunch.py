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

from attnctl.kernels.triton.binary_call import Calls
from attnctl.kernels.triton.launch import Launch
from attnctl.kernels.triton.ready_launch import Ready, Tensors, ready_of

FORMS = 512
"""Forms that are kept, a few kilobytes each: beyond it all are dropped. A decoding batch with exact
bounds makes one a step."""


class Known(NamedTuple):
    """A form's launches and the scratch memory that each call needs of its own."""

    launches: tuple[Ready, ...]
    shapes: tuple[torch.Size, ...]
    counted: bool


class Scratch:
    """What one call's launches pass on among themselves, and what of it was asked for."""

    def __init__(self, device: torch.device, counts: Callable[[torch.device], Tensor]) -> None:
        self._device = device
        self._counts = counts
        self.made: list[Tensor] = []
        self.counted: Tensor | None = None

    def empty(self, *shape: int) -> Tensor:
        """float32, of the call's device."""
        self.made.append(torch.empty(shape, dtype=torch.float32, device=self._device))
        return self.made[-1]

    def counts(self) -> Tensor:
        """Zeros [2] int32, which the kernel that gets them leaves as zeros."""
        self.counted = self._counts(self._device)
        return self.counted


class Relaunches:
    """The launches kept for one runtime, and the counters of its persistent kernels."""

    def __init__(self, most: int = FORMS) -> None:
        self._most = most
        self._known: dict[Hashable, Known] = {}
        self._calls = Calls()
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
        self,
        facts: Hashable,
        tensors: Tensors,
        make: Callable[[Scratch], list[Launch]],
        alike: Callable[[], Hashable] | None = None,
    ) -> None:
        """Runs a form's launches over these tensors. make: gives them where they are not known.

        facts: all that the launches depend on beside the tensors' own forms. alike: of facts that
        are not known, what all that have these launches have in common; None for nothing. The first
        tensor says where scratch memory lies.
        """
        first = tensors[0]
        assert first is not None
        forms = tuple(map(form_of, tensors))
        form, wider = (facts, forms), None
        known = self._known.get(form)
        if known is None:
            common = None if alike is None else alike()
            if common is not None:
                wider = (common, forms)
                known = self._known.get(wider)
            if known is None:
                known = self._new(tensors, make, Scratch(first.device, self.counts))
                self._keep(known, form, wider)
                return
            self._keep(known, form)
        if known.shapes or known.counted:
            scratch = Scratch(first.device, self.counts)
            made = [scratch.empty(*shape) for shape in known.shapes]
            tensors = (*tensors, scratch.counts() if known.counted else None, *made)
        stream = self.stream(first.get_device())
        for one in known.launches:
            one.run(stream, tensors)

    def _new(
        self, tensors: Tensors, make: Callable[[Scratch], list[Launch]], scratch: Scratch
    ) -> Known | None:
        """Runs new launches; what is known of them then, None where they cannot be kept."""
        launches = make(scratch)
        binaries = [self.first(one) for one in launches]
        whole = (*tensors, scratch.counted, *scratch.made)
        pairs = zip(launches, binaries, strict=True)
        ready = [ready_of(*pair, whole, self._calls.of) for pair in pairs]
        kept = tuple(one for one in ready if one is not None)
        if len(kept) < len(ready):
            return None
        shapes = tuple(one.shape for one in scratch.made)
        return Known(kept, shapes, scratch.counted is not None)

    def _keep(self, known: Known | None, *forms: Hashable) -> None:
        if known is None:
            return
        if len(self._known) >= self._most:
            self._known.clear()
            self._calls = Calls()
        self._known.update((form, known) for form in forms if form is not None)

    def first(self, launch: Launch) -> Any:
        """Runs a launch through Triton's own choice of a binary, which it gives."""
        return launch.kernel[launch.grid](*launch.arguments, **launch.constants)

    def stream(self, index: int) -> int:
        """The current stream of a device, as a driver names it."""
        return int(triton.runtime.driver.active.get_current_stream(index))

    def captured(self) -> bool:
        """Whether what is launched goes into a CUDA graph."""
        return bool(torch.cuda.is_current_stream_capturing())

    def counts(self, device: torch.device) -> Tensor:
        """Two zeros [2] int32 on the device, which the kernel that gets them leaves as zeros.

        A stream runs one kernel at a time, so that its kernels share them. What a CUDA graph holds
        may be replayed beside any stream: it gets its own.
        """
        if self.captured():
            return new_counts(device)
        stream = device, self.stream(device.index or 0)
        found = self._counts.get(stream)
        if found is None:
            if len(self._counts) >= self._most:
                # their memory goes back to their own streams, behind the kernels there
                self._counts.clear()
            found = self._counts[stream] = new_counts(device)
        return found


def new_counts(device: torch.device) -> Tensor:
    """Two zeros [2] int32."""
    return torch.zeros(2, dtype=torch.int32, device=device)


def form_of(tensor: Tensor | None) -> Hashable:
    """What of a tensor a launch depends on."""
    if tensor is None:
        return None
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.data_ptr() % 16
