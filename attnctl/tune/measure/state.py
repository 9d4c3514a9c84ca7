"""The operations that keep a state, at workload sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.caches.states import channels_of
from attnctl.exits import InputError
from attnctl.layer import Layer
from attnctl.model.spec import State
from attnctl.ops.case import Case, Value
from attnctl.ops.compare import Comparison, compare, fault, guarded, overrun
from attnctl.ops.state_cases import case
from attnctl.ops.state_inputs import build, moved, pool_shape
from attnctl.ops.state_trial import SPECIFICATIONS
from attnctl.ops.states import take
from attnctl.runtime import StateMetadata
from attnctl.tune.measure.lengths import Lengths, normal
from attnctl.tune.settings import Work

CHECKED_TOKENS = 32


Judged = tuple[Tensor, Tensor]
"""Outputs and states."""


class RecurrentBatch:
    """Tokens of B sequences, each with a state in a slot of its own; every copy has other slots."""

    def __init__(self, work: Work, lengths: Lengths, device: torch.device) -> None:
        self.lengths, self.device = lengths, device
        self.case = _case(work.layer, lengths)
        # random numbers are dear: a batch of many alike sequences repeats some
        self.inputs = moved(_inputs(self.case, lengths), device)
        self.known = work.phase == "decode" or work.context > work.query
        count = len(lengths.queries)
        order = torch.randperm(
            count * lengths.copies, generator=torch.Generator().manual_seed(7)
        ).to(torch.int32)
        self.slots = order.view(lengths.copies, count).to(device)
        dtype = getattr(torch, str(self.case["state_dtype"]))
        shape = pool_shape(self.case)
        self.pool = normal((order.numel(), *shape), dtype, device)
        self.starts = torch.tensor([0, *lengths.queries]).cumsum(0).to(torch.int32).to(device)
        self._first = self.pool[self._checked_slots()].clone()
        self._specified: tuple[Judged, Judged] | None = None

    def calls(self, runtime: Any) -> list[Callable[[], Any]]:
        out = self._blank()
        return [self._call(runtime, copy, out) for copy in range(self.lengths.copies)]

    def check(self, runtime: Any) -> Comparison:
        blank = self._blank()
        out, buffer = guarded(tuple(blank.shape), blank.dtype, self.device)
        # a run leaves other states behind: each is judged from the same ones
        self.pool[self._checked_slots()] = self._first
        self._call(runtime, 0, out)()
        stray = overrun(buffer)
        if stray:
            return fault("overrun", stray)
        if self._specified is None:
            self._specified = self._reference(torch.float64), self._reference(torch.float32)
        (exact, states), (same, same_states) = self._specified
        found = compare(out[self._rows()].cpu(), exact, same.to(out.dtype))
        if found.verdict != "pass" or not self.lengths.whole:
            return found
        # many tokens at once may leave states as exact as the outputs, one at a time their own
        dtype = out.dtype if max(self.lengths.queries) > 1 else self.pool.dtype
        left = self.pool[self._checked_slots()].cpu().to(dtype)
        judged = compare(left, states, same_states.to(dtype))
        return judged if judged.verdict != "pass" else found

    def _call(self, runtime: Any, copy: int, out: Tensor) -> Callable[[], Any]:
        count = len(self.lengths.queries)
        metadata = runtime.build_metadata(
            self.starts,
            self.slots[copy],
            torch.full((count,), 9 if self.known else 0, dtype=torch.int32, device=self.device),
            max_query_len=max(self.lengths.queries),
        )

        def call() -> Any:
            return runtime.forward(self.inputs, self.pool, metadata, out)

        return call

    def _blank(self) -> Tensor:
        first = getattr(self.inputs, self.inputs.per_token[0])
        name = "v" if hasattr(self.inputs, "v") else self.inputs.per_token[0]
        shape = getattr(self.inputs, name).shape
        return torch.zeros(shape, dtype=first.dtype, device=self.device)

    def _checked(self) -> list[int]:
        if self.lengths.whole:
            return list(range(len(self.lengths.queries)))
        return sorted({0, len(self.lengths.queries) - 1})

    def _checked_slots(self) -> Tensor:
        return self.slots[0][torch.tensor(self._checked(), device=self.device)].long()

    def _counts(self) -> list[int]:
        """Tokens of each checked sequence that are checked: the first ones need no others."""
        most = max(self.lengths.queries) if self.lengths.whole else CHECKED_TOKENS
        return [min(self.lengths.queries[b], most) for b in self._checked()]

    def _rows(self) -> Tensor:
        starts = self.starts.tolist()
        pairs = zip(self._checked(), self._counts(), strict=True)
        return torch.cat([torch.arange(starts[b], starts[b] + n) for b, n in pairs]).to(self.device)

    def _reference(self, dtype: torch.dtype) -> Judged:
        """Outputs of the checked tokens and the states after them, on the processor."""
        counts = self._counts()
        metadata = StateMetadata(
            query_start_loc=torch.tensor([0, *counts]).cumsum(0).to(torch.int32),
            state_indices=torch.arange(len(counts), dtype=torch.int32)[:, None],
            has_initial_state=torch.full((len(counts),), self.known),
            max_query_len=max(counts),
        )
        inputs = moved(take(self.inputs, self._rows()), "cpu")
        pool = self._first.cpu()
        pool = pool.double() if dtype is torch.float64 else pool.clone()
        found: Tensor = SPECIFICATIONS[self.case.op](inputs, pool, metadata, dtype=dtype)
        return found, pool


def _inputs(shape: Case, lengths: Lengths) -> Any:
    """The operation's inputs over all tokens; beyond DRAWN of them the same ones come again."""
    drawn = build(shape).inputs
    tokens = getattr(drawn, drawn.per_token[0]).shape[0]
    if tokens >= lengths.tokens:
        return drawn
    return take(drawn, torch.arange(lengths.tokens) % tokens)


DRAWN = 4099
"""Tokens that are drawn at most; a prime, so that no two sequences are alike."""


def _case(layer: Layer, lengths: Lengths) -> Case:
    state, op = layer.group.state, layer.op
    if state is None or op is None:
        raise InputError(f"tune: {layer.group.kind} layers without a state's widths are not timed")
    widths = {name: value for name, value in _widths(state, layer).items() if value is not None}
    tokens = min(lengths.tokens, DRAWN)
    return case(op, queries=str(tokens), initial="all", dtype=layer.dtype, **widths)


def _widths(state: State, layer: Layer) -> dict[str, Value]:
    """The case's parameters for the layer's share of one rank."""

    def share(count: int | None) -> int | None:
        return None if count is None else max(1, count // layer.tp)

    if layer.op == "gdn":
        kda = state.type == "kda"
        heads = share(state.num_v_heads or state.num_heads)
        width = state.head_v_dim or state.head_dim
        return {
            "k_heads": heads if kda else share(state.num_k_heads),
            "v_heads": heads,
            "head_k_dim": state.head_k_dim or width,
            "head_v_dim": width,
            "kda": kda,
            "gate": True,
        }
    if layer.op == "mamba1":
        return {"channels": share(channels_of(state)), "state_size": state.state_size}
    if layer.op == "mamba2":
        return {
            "heads": share(state.num_heads),
            "head_dim": state.head_dim,
            "groups": share(state.n_groups),
            "state_size": state.state_size,
        }
    if layer.op == "short_conv":
        return {"channels": share(channels_of(state)), "width": state.conv_kernel}
    return {"heads": share(state.num_heads), "head_dim": state.head_dim}
