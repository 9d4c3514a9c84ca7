"""Calls of the compiled state kernels by ctypes: each call's arguments are packed into one block.

An input that they do not take (another dtype, a slot that is not dense) is left to the caller.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.findings import Finding
from attnctl.kernels.cpu.build import build_here
from attnctl.kernels.cpu.state_pack import Refused, pack
from attnctl.runtime import StateMetadata

if TYPE_CHECKING:
    from attnctl.probe.host import Host

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1

SOURCE = Path(__file__).with_name("states.cpp")

_WRONG = {
    1: "query_start_loc must rise from 0 to at most the {tokens} tokens; it does not in row {row}",
    2: "state_indices of row {row} name a slot beyond the pool, which has {slots}",
    3: "num_accepted of row {row} must lie between 1 and {most}",
}


def open_states(host: Host) -> tuple[NativeStates | None, Finding]:
    """The compiled state kernels; None with a finding that says why there is no compiler."""
    built = build_here(host, SOURCE)
    return (NativeStates(built.path) if built.path else None), built.finding


class NativeStates:
    """The state kernels of one shared object. Load it after torch: both then share one OpenMP."""

    name = "c++"

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._functions: dict[str, Callable[[bytes], int]] = {}
        for op in ("gdn", "mamba1", "mamba2", "linear", "short_conv"):
            function = getattr(library, f"attnctl_{op}")
            function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_longlong
            self._functions[op] = function
        self._batch: tuple[StateMetadata, int, int, tuple[int, ...]] | None = None

    def again(
        self, op: str, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor | None
    ) -> Tensor | None:
        """The result of one more layer of the batch seen last; `out` None: a new tensor.

        None where this is no such layer, or anything else is not as it should be: nothing has been
        done then, and the checks have not been told. InputError: as of forward.
        """
        last = self._batch
        if last is None or last[0] is not metadata:
            return None
        tokens, slots, members = last[1:]
        batch = (*members, torch.get_num_threads())
        try:
            block, out, _kept = pack(op, inputs, state, batch, metadata.num_spec, out)
        except (Refused, InputError, RuntimeError):
            return None
        if out.shape[0] != tokens or state.shape[0] != slots:
            return None
        self._call(op, block, batch)
        return out

    def forward(
        self, op: str, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor
    ) -> bool:
        """False where the kernels do not take these tensors: nothing has been done then.

        The tensors are such as attnctl.kernels.states.checks lets pass. InputError: the batch leads
        beyond them; its numbers may have changed since it was looked at.
        """
        # tensors that are made for the call live as long as it does
        members, _copied = self._open(metadata, out.shape[0], state.shape[0])
        batch = (*members, torch.get_num_threads())
        try:
            block, _, _kept = pack(op, inputs, state, batch, metadata.num_spec, out)
        except Refused:
            return False
        self._call(op, block, batch)
        return True

    def _call(self, op: str, block: bytes, batch: tuple[int, ...]) -> None:
        wrong = self._functions[op](block)
        if wrong:
            what = _WRONG[wrong % 8].format(
                row=wrong // 8, tokens=batch[8], slots=batch[9], most=batch[7]
            )
            raise InputError(f"{op}: {what}")

    def _open(
        self, metadata: StateMetadata, tokens: int, slots: int
    ) -> tuple[tuple[int, ...], list[Tensor]]:
        """The members of struct Batch but threads, and copies of what the kernels do not read as
        it is; a batch that several layers share is looked at once."""
        last = self._batch
        if last is not None and last[0] is metadata and last[1:3] == (tokens, slots):
            return last[3], []
        members, copied = _batch(metadata, tokens, slots)
        # what is copied may change after this call
        if not copied:
            self._batch = (metadata, tokens, slots, members)
        return members, copied


def _batch(
    metadata: StateMetadata, tokens: int, slots: int
) -> tuple[tuple[int, ...], list[Tensor]]:
    indices, rows = metadata.state_indices, metadata.query_start_loc.shape[0] - 1
    found, copied = [], []
    for name, dtype in (
        ("query_start_loc", torch.int32),
        ("state_indices", torch.int32),
        ("num_accepted", torch.int32),
        ("has_initial_state", torch.bool),
        ("speculative", torch.bool),
    ):
        tensor = getattr(metadata, name)
        if tensor is None:
            found.append(0)
            continue
        if tensor.dtype is not dtype or not tensor.is_contiguous():
            if tensor.dtype is torch.int64 and dtype is torch.int32:
                # what is beyond every pool stays so
                tensor = tensor.clamp(_LEAST, _MOST)
            tensor = tensor.to(dtype).contiguous()
            copied.append(tensor)
        found.append(tensor.data_ptr())
    most = 1 + metadata.num_spec if indices.shape[1] == 1 else indices.shape[1]
    return (*found, rows, indices.shape[1], most, tokens, slots), copied
