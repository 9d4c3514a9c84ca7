"""Faults of latent attention, of its merge, of its sparse form and of the indexer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.runtime import open_backend
from attnctl.selftest.planted import Planted

replace = msgspec.structs.replace
DENSE = ("mla", "merge_states")


def sound(case: Case) -> Any:
    """The kernel without a fault."""
    return open_backend("CPU_MLA" if case.op in DENSE else "CPU_MLA_SPARSE")


def rope_ignored(case: Case) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, params: Any, *rest: Any) -> Tensor:
        bare = query.clone()
        bare[..., params.kv_lora_rank :] = 0.0
        found: Tensor = kernel.forward(bare, cache, metadata, params, *rest)
        return found

    return Planted(kernel, forward=forward)


def values_of_the_whole_row(case: Case) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, params: Any, out: Tensor,
                lse: Tensor | None = None) -> Tensor:  # fmt: skip
        rope = cache.shape[-1] - params.kv_lora_rank
        found: Tensor = kernel.forward(query, cache, metadata, params, out, lse)
        out.copy_(found.roll(-rope, dims=-1))
        return out

    return Planted(kernel, forward=forward)


def latent_scale(case: Case) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, params: Any, *rest: Any) -> Tensor:
        other = replace(params, scale=query.shape[-1] ** -0.5)
        found: Tensor = kernel.forward(query, cache, metadata, other, *rest)
        return found

    return Planted(kernel, forward=forward)


def lse_in_base_two(case: Case) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, params: Any, out: Tensor,
                lse: Tensor | None = None) -> Tensor:  # fmt: skip
        found: Tensor = kernel.forward(query, cache, metadata, params, out, lse)
        if lse is not None:
            lse.mul_(math.log2(math.e))
        return found

    return Planted(kernel, forward=forward)


def merged_by_halves(case: Case) -> Planted:
    kernel = sound(case)

    def merge_states(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor, out: Tensor,
                     lse: Tensor) -> tuple[Tensor, Tensor]:  # fmt: skip
        kernel.merge_states(out_a, lse_a, out_b, lse_b, out, lse)
        out.copy_((out_a + out_b) / 2)
        return out, lse

    return Planted(kernel, merge_states=merge_states)


def _with_slots(case: Case, change: Any) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, slots: Tensor, *rest: Any) -> Tensor:
        found: Tensor = kernel.forward(query, cache, metadata, change(slots, cache), *rest)
        return found

    return Planted(kernel, forward=forward)


def hole_is_token_zero(case: Case) -> Planted:
    def change(slots: Tensor, cache: Tensor) -> Tensor:
        first = slots.clamp(min=0).amax(dim=1, keepdim=True)
        return torch.where(slots < 0, first.to(slots.dtype), slots)

    return _with_slots(case, change)


def stray_index_clamped(case: Case) -> Planted:
    def change(slots: Tensor, cache: Tensor) -> Tensor:
        count = cache.shape[0] * cache.shape[1]
        real = torch.where((slots >= 0) & (slots < count), slots, -1).amax(dim=1, keepdim=True)
        return torch.where(slots >= count, real, slots)

    return _with_slots(case, change)


def nothing_is_not_a_number(case: Case) -> Planted:
    kernel = sound(case)

    def forward(query: Tensor, cache: Tensor, metadata: Any, slots: Tensor, params: Any,
                out: Tensor, *rest: Any) -> Tensor:  # fmt: skip
        found: Tensor = kernel.forward(query, cache, metadata, slots, params, out, *rest)
        count = cache.shape[0] * cache.shape[1]
        empty = ~((slots >= 0) & (slots < count)).any(dim=1)
        out[: slots.shape[0]][empty] = torch.nan
        return found

    return Planted(kernel, forward=forward)


def relu_dropped(case: Case) -> Planted:
    kernel = sound(case)

    def logits(query: Tensor, weights: Tensor, *rest: Any) -> Tensor:
        # max(x, 0) - max(-x, 0) is x
        found: Tensor = kernel.index_logits(query, weights, *rest)
        other: Tensor = kernel.index_logits(-query.float(), weights, *rest).to(found.dtype)
        return torch.where(found == -torch.inf, found, found - other)

    return Planted(kernel, index_logits=logits)


def index_weights_ignored(case: Case) -> Planted:
    kernel = sound(case)

    def logits(query: Tensor, weights: Tensor, *rest: Any) -> Tensor:
        found: Tensor = kernel.index_logits(query, torch.ones_like(weights), *rest)
        return found

    return Planted(kernel, index_logits=logits)


def picks_the_future(case: Case) -> Planted:
    kernel = sound(case)

    def select(query: Tensor, weights: Tensor, cache: Tensor, metadata: Any, params: Any,
               out: Tensor | None = None) -> Tensor:  # fmt: skip
        found: Tensor = kernel.select_tokens(query, weights, cache, metadata, params, out)
        found[0, 0] = int(metadata.seq_lens[0])
        return found

    return Planted(kernel, select_tokens=select)


def one_pick_short(case: Case) -> Planted:
    kernel = sound(case)

    def select(query: Tensor, weights: Tensor, cache: Tensor, metadata: Any, params: Any,
               out: Tensor | None = None) -> Tensor:  # fmt: skip
        found: Tensor = kernel.select_tokens(query, weights, cache, metadata, params, out)
        found[:, -1] = -1
        return found

    return Planted(kernel, select_tokens=select)
