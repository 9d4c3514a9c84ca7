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
from attnctl.kernels.cpu.state_pack import PACKERS, Call, Refused
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

    def forward(
        self, op: str, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor
    ) -> bool:
        """False where the kernels do not take these tensors: nothing has been done then.

        The tensors are such as attnctl.kernels.state_checks lets pass. InputError: the batch leads
        beyond them; its numbers may have changed since it was looked at.
        """
        call = Call(state)
        try:
            batch = self._open(metadata, out.shape[0], state.shape[0], call.kept)
            arguments = PACKERS[op](call, inputs, batch, out, metadata)
        except Refused:
            return False
        wrong = self._functions[op](arguments)
        if wrong:
            what = _WRONG[wrong % 8].format(
                row=wrong // 8, tokens=out.shape[0], slots=state.shape[0], most=batch[7]
            )
            raise InputError(f"{op}: {what}")
        return True

    def _open(
        self, metadata: StateMetadata, tokens: int, slots: int, kept: list[Tensor]
    ) -> tuple[int, ...]:
        """The members of struct Batch; a batch that several layers share is looked at once."""
        last, threads = self._batch, torch.get_num_threads()
        if last is not None and last[0] is metadata and last[1:3] == (tokens, slots):
            return (*last[3], threads)
        members, copied = _batch(metadata, tokens, slots)
        # what is copied may change after this call, and the copies live as long as the call does
        kept += copied
        if not copied:
            self._batch = (metadata, tokens, slots, members)
        return (*members, threads)


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
