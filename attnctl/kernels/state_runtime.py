"""A runtime of one state-space operation: Triton on a GPU, plain torch on a processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from attnctl import cache
from attnctl.exits import InputError
from attnctl.kernels.rivals import Load, importable, rival
from attnctl.model.spec import State
from attnctl.ops.short_conv import ShortConv, check
from attnctl.runtime import StateMetadata
from attnctl.tune.settings import BLOCK_SIZE, Limits, Setting, Work, refuse_kernel

Shape = tuple[int, ...]


class StateAttention:
    """StateRuntime of one operation.

    kinds: the state types whose layers it computes (attnctl.model.spec.State.type). shapes: from
    inputs to the shapes of one slot and of the output. rivals: names of attnctl.kernels.rivals'
    modules that compute it too; kernel: the one of them that does, "" for the bundled kernels.
    load: import_module, or what stands for it.
    """

    def __init__(
        self,
        name: str,
        op: str,
        kinds: tuple[str, ...],
        shapes: Callable[[Any], tuple[Shape, Shape]],
        rivals: tuple[str, ...] = (),
        *,
        kernel: str = "",
        load: Load = import_module,
    ) -> None:
        self._name = name
        self._op = op
        self._kinds = kinds
        self._shapes = shapes
        self._rivals = rivals
        self._kernel = kernel
        self._load = load

    def get_name(self) -> str:
        return self._name

    def is_ssm(self) -> bool:
        return True

    def rivals(self) -> tuple[str, ...]:
        """The rival kernels whose package is installed here."""
        return importable(self._rivals)

    def settings(self, work: Work, limits: Limits) -> tuple[Setting, ...]:
        """The bundled kernels, and every rival that is installed here."""
        return (Setting(), *(Setting(kernel=name) for name in self.rivals()))

    def with_knobs(
        self, knobs: Mapping[str, Any], kernel: str = "", load: Load | None = None
    ) -> StateAttention:
        """This runtime on a rival kernel. InputError: it has no such kernel, or no such knob."""
        for knob in set(knobs) - {BLOCK_SIZE}:
            raise InputError(f"{self._name}: no knob {knob!r}; it has none")
        refuse_kernel(self._name, kernel, self._rivals)
        return type(self)(
            self._name, self._op, self._kinds, self._shapes, self._rivals, kernel=kernel,
            load=load or self._load,
        )  # fmt: skip

    def state_shapes(
        self, state: State, tp: int = 1, num_spec: int = 0
    ) -> tuple[tuple[str, Shape], ...]:
        """Name and shape of each state tensor of one slot. InputError: another kind of layer."""
        if state.type not in self._kinds:
            raise InputError(
                f"{self._name}: it keeps states of {' and '.join(self._kinds)}; this layer's is "
                f"{state.type}. Take the backend that attnctl select names for it"
            )
        return cache.state_shapes(state, tp, num_spec)

    def build_metadata(
        self,
        query_start_loc: Tensor,
        state_indices: Tensor,
        num_computed_tokens: Tensor,
        *,
        max_query_len: int,
        num_accepted: Tensor | None = None,
        speculative: Tensor | None = None,
        num_spec: int = 0,
    ) -> StateMetadata:
        """state_indices: [B] or [B, 1 + K]. InputError: the number of rows or columns disagrees."""
        if state_indices.dim() == 1:
            state_indices = state_indices[:, None]
        rows = query_start_loc.shape[0] - 1
        per_row = {
            "state_indices": state_indices,
            "num_computed_tokens": num_computed_tokens,
            "num_accepted": num_accepted,
            "speculative": speculative,
        }
        for field, value in per_row.items():
            if value is not None and value.shape[0] != rows:
                raise InputError(
                    f"{self._name}: {field} has {value.shape[0]} rows and query_start_loc {rows}; "
                    "give one of each per sequence"
                )
        if self._op != "short_conv" and state_indices.shape[1] <= num_spec:
            raise InputError(
                f"{self._name}: {num_spec} drafts need {1 + num_spec} columns of state_indices; "
                f"it has {state_indices.shape[1]}"
            )
        return StateMetadata(
            query_start_loc=query_start_loc,
            state_indices=state_indices,
            has_initial_state=num_computed_tokens > 0,
            max_query_len=max_query_len,
            num_accepted=num_accepted,
            speculative=speculative,
            num_spec=num_spec,
        )

    def forward(
        self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor | None = None
    ) -> Tensor:
        """Outputs of every token; states in place. InputError: the pool is of another shape."""
        if isinstance(inputs, ShortConv):
            check(inputs.weight.shape[1], state.shape[1], metadata.num_spec)
        slot, result = self._shapes(inputs)
        _same(f"{self._name}: a slot of the pool", tuple(state.shape[1:]), slot)
        if out is None:
            first = getattr(inputs, inputs.per_token[0])
            out = torch.zeros(result, dtype=first.dtype, device=first.device)
        _same(f"{self._name}: out", tuple(out.shape), result)
        if not self._kernel:
            _form(self._op, state.device).forward(inputs, state, metadata, out)
        elif out.numel() and metadata.max_query_len:
            compute = rival(self._kernel, self._op)
            compute(inputs, state, metadata, out, self._load)
        return out


def _same(what: str, found: Shape, wanted: Shape) -> None:
    if any(f != w for f, w in zip(found, wanted, strict=True) if w >= 0):
        raise InputError(f"{what} must be {list(wanted)} for these inputs; it is {list(found)}")


def _form(op: str, device: torch.device) -> Any:
    """The module that computes `op` on this device."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    form = "eager" if device.type == "cpu" and not interpreted else "triton"
    return import_module(f"attnctl.kernels.{form}.{op}")
