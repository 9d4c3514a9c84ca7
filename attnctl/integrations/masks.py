"""transformers' mask functions, told apart: those that a paged kernel computes, and the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnctl.exits import InputError

COMPUTED = frozenset(
    {
        "causal_mask_function",
        "bidirectional_mask_function",
        "sliding_window_overlay.<locals>.inner_mask",
    }
)
"""What the layer's causality and its window say by themselves."""


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | None = None,
    **others: Any,
) -> Tensor | None:
    """None where every token counts, else [B, S] bool, false for padding.

    S leaves out what a preallocated cache holds beyond the last token. InputError: a mask that the
    layer's causality and window do not say.
    """
    for leaf in _leaves(mask_function):
        name = getattr(leaf, "__qualname__", repr(leaf))
        if name not in COMPUTED:
            raise InputError(
                f"attnctl: the mask of this model ({name.partition('.')[0]}) is none that its "
                'layers state; use attn_implementation="sdpa" for it'
            )
    seen = int(q_offset) + q_length - kv_offset
    if attention_mask is not None:
        mask = attention_mask[:, kv_offset : kv_offset + min(seen, kv_length)].bool()
        if mask.shape[1] < min(seen, kv_length):
            mask = attention_mask[:, -kv_length:].bool()
        return None if mask.shape[1] == kv_length and bool(mask.all()) else mask
    if seen < kv_length:
        return torch.ones(batch_size, seen, dtype=torch.bool, device=device)
    return None


def _leaves(function: Callable[..., Any] | None) -> Iterator[Callable[..., Any]]:
    """The functions of which one is made up, itself where it is of no others."""
    if function is None:
        return
    inner = [one for cell in function.__closure__ or () for one in _callables(cell.cell_contents)]
    if not inner:
        yield function
    for one in inner:
        yield from _leaves(one)


def _callables(value: Any) -> list[Callable[..., Any]]:
    values = value if isinstance(value, (tuple, list)) else [value]
    return [one for one in values if hasattr(one, "__closure__")]
