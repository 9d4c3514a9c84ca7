"""Batches of the state-space operations in their models' shapes, for the benchmarks of a processor.

A problem holds what our runtime takes; peers read the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn.functional import normalize

from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.runtime import StateMetadata, open_backend

BACKENDS = {
    "gdn": "GDN_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
    "linear": "LINEAR_ATTN",
}


class Shape(msgspec.Struct, frozen=True):
    """B sequences of `queries` tokens each, all of them with a state; drafts: verification."""

    op: str
    name: str
    batch: int
    queries: int
    drafts: int = 0
    kda: bool = False


SHAPES = (
    Shape("gdn", "prefill 1x1024", 1, 1024),
    Shape("gdn", "prefill 8x128", 8, 128),
    Shape("gdn", "decode B=1", 1, 1),
    Shape("gdn", "decode B=16", 16, 1),
    Shape("gdn", "decode B=64", 64, 1),
    Shape("gdn", "verify B=8 K=3", 8, 4, 3),
    Shape("gdn", "KDA prefill 1x512", 1, 512, kda=True),
    Shape("gdn", "KDA decode B=16", 16, 1, kda=True),
    Shape("mamba1", "prefill 1x512", 1, 512),
    Shape("mamba1", "prefill 8x64", 8, 64),
    Shape("mamba1", "decode B=16", 16, 1),
    Shape("mamba1", "decode B=64", 64, 1),
    Shape("mamba2", "prefill 1x1024", 1, 1024),
    Shape("mamba2", "prefill 8x128", 8, 128),
    Shape("mamba2", "decode B=1", 1, 1),
    Shape("mamba2", "decode B=16", 16, 1),
    Shape("mamba2", "decode B=64", 64, 1),
    Shape("short_conv", "prefill 1x4096", 1, 4096),
    Shape("short_conv", "prefill 16x256", 16, 256),
    Shape("short_conv", "decode B=16", 16, 1),
    Shape("short_conv", "decode B=256", 256, 1),
    Shape("linear", "prefill 1x1024", 1, 1024),
    Shape("linear", "prefill 8x128", 8, 128),
    Shape("linear", "decode B=16", 16, 1),
)


class Problem:
    """One shape's tensors: inputs in bfloat16, states in float32 (the convolution's: bfloat16)."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._generator = torch.Generator().manual_seed(7)
        tokens = shape.batch * shape.queries
        self.inputs, slot = _MAKERS[shape.op](self, tokens)
        columns, conv = 1 + shape.drafts, shape.op == "short_conv"
        slots = shape.batch * columns + 1
        order = torch.randperm(slots - 1, generator=self._generator) + 1
        self.slots = order.view(shape.batch, columns).to(torch.int32)
        state = self.draw(slots, *slot) * 0.1
        self.state = state.to(torch.bfloat16) if conv else state
        self.starts = torch.arange(0, tokens + 1, shape.queries, dtype=torch.int32)
        self.runtime = open_backend(BACKENDS[shape.op])
        first = getattr(self.inputs, "v", None)
        self.out = torch.empty_like(self.inputs.x if first is None else first)

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._generator)

    def metadata(self) -> StateMetadata:
        batch, drafts = self.shape.batch, self.shape.drafts
        return self.runtime.build_metadata(
            self.starts,
            self.slots,
            torch.ones(batch, dtype=torch.int32),
            max_query_len=self.shape.queries,
            num_accepted=torch.full((batch,), 2, dtype=torch.int32) if drafts else None,
            speculative=torch.ones(batch, dtype=torch.bool) if drafts else None,
            num_spec=drafts,
        )

    def ours(self) -> Callable[[], Tensor]:
        metadata = self.metadata()
        return lambda: self.runtime.forward(self.inputs, self.state, metadata, self.out)

    def moved_bytes(self) -> int:
        """Inputs and outputs once; each row's state read once and written once a kept token."""
        tensors = [getattr(self.inputs, name) for name in self.inputs.per_token]
        passed = sum(t.numel() * t.element_size() for t in tensors if t is not None)
        passed += self.out.numel() * self.out.element_size()
        slot = self.state[0].numel() * self.state.element_size()
        return passed + self.shape.batch * slot * (2 + self.shape.drafts)


def _gdn(problem: Problem, tokens: int) -> tuple[Any, tuple[int, ...]]:
    kda = problem.shape.kda
    k_heads, v_heads, width = (32 if kda else 16), 32, 128
    gates = (v_heads, width) if kda else (v_heads,)
    inputs = Gdn(
        q=problem.draw(tokens, k_heads, width).bfloat16(),
        k=problem.draw(tokens, k_heads, width).bfloat16(),
        v=problem.draw(tokens, v_heads, width).bfloat16(),
        g=problem.draw(tokens, *gates).bfloat16(),
        beta=problem.draw(tokens, v_heads).sigmoid(),
        scale=width**-0.5,
        l2norm=True,
        a_log=problem.draw(v_heads) - 1.0,
        dt_bias=problem.draw(*gates),
    )
    return inputs, (v_heads, width, width)


def _mamba1(problem: Problem, tokens: int) -> tuple[Any, tuple[int, ...]]:
    channels, size = 4096, 16
    inputs = Mamba1(
        x=problem.draw(tokens, channels).bfloat16(),
        dt=problem.draw(tokens, channels).bfloat16(),
        b=problem.draw(tokens, size).bfloat16(),
        c=problem.draw(tokens, size).bfloat16(),
        a=-(1.0 + torch.arange(size)).expand(channels, size).contiguous(),
        z=problem.draw(tokens, channels).bfloat16(),
        d=problem.draw(channels),
        dt_bias=problem.draw(channels) - 3.0,
    )
    return inputs, (channels, size)


def _mamba2(problem: Problem, tokens: int) -> tuple[Any, tuple[int, ...]]:
    heads, width, groups, size = 64, 64, 8, 128
    inputs = Mamba2(
        x=problem.draw(tokens, heads, width).bfloat16(),
        dt=problem.draw(tokens, heads).bfloat16(),
        b=problem.draw(tokens, groups, size).bfloat16(),
        c=problem.draw(tokens, groups, size).bfloat16(),
        a=-(0.5 + 4.0 * torch.rand(heads, generator=problem._generator)),
        d=problem.draw(heads),
        dt_bias=problem.draw(heads) - 2.0,
    )
    return inputs, (heads, width, size)


def _short_conv(problem: Problem, tokens: int) -> tuple[Any, tuple[int, ...]]:
    channels, width = 8192, 4
    inputs = ShortConv(
        x=problem.draw(tokens, channels).bfloat16(),
        weight=problem.draw(channels, width).bfloat16(),
        bias=problem.draw(channels).bfloat16(),
        activation="silu",
    )
    return inputs, (width - 1, channels)


def _linear(problem: Problem, tokens: int) -> tuple[Any, tuple[int, ...]]:
    heads, width = 64, 128
    inputs = Linear(
        q=normalize(problem.draw(tokens, heads, width), dim=-1).bfloat16(),
        k=normalize(problem.draw(tokens, heads, width), dim=-1).bfloat16(),
        v=problem.draw(tokens, heads, width).bfloat16(),
        slope=2.0 ** -(8.0 * torch.arange(1, heads + 1) / heads),
    )
    return inputs, (heads, width, width)


_MAKERS = {
    "gdn": _gdn,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short_conv": _short_conv,
    "linear": _linear,
}
