"""Batches of the state-space operations for the benchmarks of a GPU, in shapes of known models."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module

import torch
from gpu_times import GPU

from attnctl.kernels.triton.states import decayed, gdn_chunks, mamba1_scan
from attnctl.ops.gdn import Gdn
from attnctl.ops.linear import Linear
from attnctl.ops.mamba1 import Mamba1
from attnctl.ops.mamba2 import Mamba2
from attnctl.ops.short_conv import ShortConv
from attnctl.ops.state_trial import SPECIFICATIONS
from attnctl.ops.states import over_tensors
from attnctl.runtime import StateMetadata

HALF = torch.bfloat16

STATES = {
    "gdn": ((32, 128, 128), torch.float32),
    "kda": ((32, 128, 128), torch.float32),
    "mamba2": ((128, 64, 128), HALF),
    "linear": ((64, 128, 128), torch.float32),
    "mamba1": ((8192, 16), torch.float32),
    "short_conv": ((3, 8192), HALF),
}
"""One slot. Shapes: Qwen3-Next's GDN with a key head per value head; Mamba 2 of 128 heads of 64,
8 groups, 128 states; MiniMax-Text-01's 64 heads; Mamba 1 and convolutions of 8192 channels."""


def draw(*shape, dtype=HALF):
    return torch.randn(*shape, device=GPU, dtype=dtype)


def uniform(*shape, dtype=torch.float32):
    return torch.rand(*shape, device=GPU, dtype=dtype)


def gdn(tokens, channel=False):
    gates = (32, 128) if channel else (32,)
    return Gdn(
        q=draw(tokens, 32, 128),
        k=draw(tokens, 32, 128),
        v=draw(tokens, 32, 128),
        g=-uniform(tokens, *gates),
        beta=uniform(tokens, 32, dtype=HALF),
        scale=128**-0.5,
        l2norm=True,
    )


def mamba2(tokens):
    return Mamba2(
        x=draw(tokens, 128, 64),
        dt=draw(tokens, 128),
        b=draw(tokens, 8, 128),
        c=draw(tokens, 8, 128),
        a=-uniform(128),
        d=uniform(128),
        dt_bias=uniform(128),
    )


def mamba1(tokens):
    return Mamba1(
        x=draw(tokens, 8192),
        dt=draw(tokens, 8192),
        b=draw(tokens, 16),
        c=draw(tokens, 16),
        a=-uniform(8192, 16) - 0.1,
        d=uniform(8192),
        dt_bias=uniform(8192),
    )


def linear(tokens):
    slope = 2.0 ** -(8.0 * torch.arange(1, 65, device=GPU) / 64)
    return Linear(
        q=draw(tokens, 64, 128), k=draw(tokens, 64, 128), v=draw(tokens, 64, 128), slope=slope,
        scale=128**-0.5,
    )  # fmt: skip


def short_conv(tokens):
    weight, bias = draw(8192, 4), draw(8192)
    return ShortConv(x=draw(tokens, 8192), weight=weight, bias=bias, activation="silu")


MAKERS = {
    "gdn": gdn,
    "kda": lambda tokens: gdn(tokens, channel=True),
    "mamba2": mamba2,
    "mamba1": mamba1,
    "linear": linear,
    "short_conv": short_conv,
}


class Batch:
    """Rows of equal length, each with a slot of its own; decodes have a state, prompts none."""

    def __init__(self, op, rows, length, sets=1):
        self.op, self.rows, self.length, self.tokens = op, rows, length, rows * length
        self.known = length == 1
        self.inputs = MAKERS[op](self.tokens)
        shape, dtype = STATES[op]
        self.pool = draw(rows * sets + 1, *shape, dtype=dtype)
        # slot 0 is the null block of vLLM's kernels
        order = 1 + torch.randperm(rows * sets, device=GPU, dtype=torch.int32)
        self.sets = order.view(sets, rows)
        self.slots = self.sets[0]
        self.theirs = None
        self.starts = torch.arange(0, self.tokens + 1, length, device=GPU, dtype=torch.int32)
        first = getattr(self.inputs, "v", getattr(self.inputs, "x", None))
        self.out = torch.empty_like(first)
        self.bytes = self.out.nbytes + self.pool[0].nbytes * rows * (1 + self.known)
        over_tensors(self.inputs, self._count)

    def _count(self, tensor):
        self.bytes += tensor.nbytes
        return tensor

    def __len__(self):
        return len(self.sets)

    def view(self, which, **changes):
        """The same batch on another set of slots."""
        batch = Batch.__new__(Batch)
        batch.__dict__.update(self.__dict__, slots=self.sets[which], **changes)
        return batch

    def metadata(self):
        return StateMetadata(
            query_start_loc=self.starts,
            state_indices=self.slots[:, None],
            has_initial_state=torch.full((self.rows,), self.known, device=GPU),
            max_query_len=self.length,
        )

    def reference(self):
        """Outputs by the specification in float32, or by the recurrent kernel; and the pool."""
        pool = self.pool.clone()
        out = torch.empty_like(self.out, dtype=torch.float32)
        batch = self.view(0, pool=pool, out=out)
        if self.length == 1:
            run = SPECIFICATIONS[self.op.replace("kda", "gdn")]
            run(self.inputs, pool, batch.metadata(), out=out, dtype=torch.float32)
        else:
            with recurrent():
                ours(batch)()
        return out, pool


def ours(batch):
    """A call of the bundled kernel."""
    module = import_module(f"attnctl.kernels.triton.states.{batch.op.replace('kda', 'gdn')}")
    metadata = batch.metadata()

    def run():
        module.forward(batch.inputs, batch.pool, metadata, batch.out)
        return batch.out

    return run


@contextmanager
def recurrent():
    """Long rows token by token. A convolution has no other form."""
    modules = (decayed, gdn_chunks, mamba1_scan)
    before = [module.LONG for module in modules]
    for module in modules:
        module.LONG = 2**31
    yield
    for module, value in zip(modules, before, strict=True):
        module.LONG = value
