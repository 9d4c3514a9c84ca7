"""AITER's latent decoding, as two backends call it: lists of cached rows, one query token each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnctl.kernels.latent.adapter import State
from attnctl.kernels.latent.tokens import least, more_heads
from attnctl.kernels.libraries import Load
from attnctl.ops.mla import Latent

MODULE = "aiter.mla"
HEADS = (16, 32, 64, 128)
"""Query heads of its decoding kernels in releases that return a log-sum-exp."""
FEWER_HEADS = (16, 128)
"""Query heads of its decoding kernels in releases before (0.1.7)."""


class AiterLatent:
    """aiter.mla.mla_decode_fwd where it can be imported."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._asked = False
        self._function: Callable[..., Any] | None = None
        self._parameters: frozenset[str] = frozenset()

    def takes(self, query: Tensor, cache: Tensor, params: Latent, lse: bool) -> bool:
        """Whether AITER is there and computes such a call."""
        self._open()
        plain = query.dtype is torch.bfloat16 and cache.dtype is torch.bfloat16
        widths = (params.kv_lora_rank, query.shape[2]) == (512, 576)
        if self._function is None or not plain or not widths:
            return False
        if lse and "return_lse" not in self._parameters:
            return False
        return least(self._heads(), query.shape[1]) is not None

    def decode(
        self, query: Tensor, rows: Tensor, starts: Tensor, listed: Tensor, params: Latent, lse: bool
    ) -> State:
        """out [T, H, L] and lse [T, H], natural, of query [T, H, L + R] over listed rows.

        rows: [N * P, L + R]. starts: [T + 1] int32, where a token's rows begin in `listed`, int32.
        """
        tokens, heads, _ = query.shape
        width = least(self._heads(), heads)
        assert width is not None
        assert self._function is not None
        wide = more_heads(query, width).contiguous()
        out = wide.new_empty(tokens, width, params.kv_lora_rank)
        row = torch.arange(tokens + 1, dtype=torch.int32, device=query.device)
        rest: dict[str, Any] = {"return_lse": True} if lse else {}
        _, top = self._function(
            wide,
            rows[:, None, None],
            out,
            row,
            starts,
            listed,
            torch.ones_like(row[1:]),
            1,
            sm_scale=params.scale,
            **rest,
        )
        return out[:, :heads], top[:, :heads] if lse else None

    def _heads(self) -> tuple[int, ...]:
        return HEADS if "return_lse" in self._parameters else FEWER_HEADS

    def _open(self) -> None:
        if self._asked:
            return
        self._asked = True
        try:
            self._function = self._load(MODULE).mla_decode_fwd
        except (ImportError, OSError):
            return
        self._parameters = frozenset(inspect.signature(self._function).parameters)
