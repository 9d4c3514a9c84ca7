"""flex_attention over work items: compiled, or unfused by the same mask and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from attnctl.kernels.flex.blocks import blocks
from attnctl.kernels.flex.edges import finite
from attnctl.kernels.flex.items import Items, items
from attnctl.kernels.flex.pages import (
    Pages,
    in_place,
    in_place_possible,
    keys_and_values,
    packed,
)
from attnctl.kernels.flex.tiles import Tiles, options, tiles_of
from attnctl.kernels.paged.packed_cache import per_head
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata


class Batch(msgspec.Struct, frozen=True):
    """What depends on the batch and the mask alone, so that the layers of a group share it.

    logical: [W, M], what each page is to each item. spans: [W, Q, 3], what each row sees and where
    it stands.
    """

    items: Items
    pages: Pages
    logical: Tensor
    spans: Tensor
    lists: tuple[Tensor, Tensor, Tensor, Tensor]


def batch_of(
    cache: Tensor,
    metadata: Metadata,
    params: Paged,
    tokens: int,
    dtype: torch.dtype,
    *,
    place: str,
) -> Batch:
    """place: "auto" (in the cache on a GPU where it can be, else packed), "cache" or "packed"."""
    found = items(metadata, params, tokens)
    size = cache.shape[1]
    possible = in_place_possible(cache, dtype) and cache.device.type != "cpu"
    if place == "cache" or (place == "auto" and possible):
        hidden = params.window is not None or params.chunk is not None
        pages = in_place(metadata, found, cache.shape[0], size, starts=hidden)
    else:
        pages = packed(metadata, found, size)
    lists = blocks(found, pages, size)
    return Batch(
        found,
        pages,
        pages.logical[found.sequence],
        torch.stack((found.low, found.high, found.position), dim=-1),
        (lists.part_count, lists.part, lists.full_count, lists.full),
    )


def attend(
    query: Tensor,
    cache: Tensor,
    batch: Batch,
    params: Paged,
    run: Callable[..., Any],
) -> Tensor:
    """[T, H, Dv] from [T, H, D]; rows of no sequence hold what an item of theirs would.

    run: `unfused`, or `fused` compiled.
    """
    found, softcap = batch.items, params.softcap
    key, value = keys_and_values(cache, query.shape[2], batch.pages, query.dtype)
    asked = query[found.token].transpose(1, 2)
    tiles = None if query.device.type == "cpu" else tiles_of(asked, value, cache.shape[1])
    with finite(value, batch.pages.unseen):
        rows = run(
            asked,
            key,
            value,
            batch.logical,
            batch.spans,
            batch.lists,
            None if softcap is None else query.new_full((), softcap, dtype=torch.float32),
            per_head(params.alibi_slopes),
            params.scale,
            cache.shape[1],
            tiles,
        )
    return rows.transpose(1, 2)[found.item, found.row]


def fused(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    """query: [W, H, Q, D], key: [1, Hk, M * P, D], value: [1, Hk, M * P, Dv] -> [W, H, Q, Dv].

    For torch.compile: called as it is, flex_attention would trace itself anew for every call.
    """
    score, mask, scale, tiles = _told(query, key, *rest)
    return flex_attention(
        query,
        key,
        value,
        score_mod=score,
        block_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
        kernel_options=None if tiles is None else options(tiles),
    )


def unfused(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
    """The same by flex_attention's operator, whose own code holds all scores at once."""
    score, mask, scale, _ = _told(query, key, *rest)
    return flex_operator(query, key, value, score, mask.as_tuple(), scale, {})[0]


def _told(
    query: Tensor,
    key: Tensor,
    logical: Tensor,
    spans: Tensor,
    lists: tuple[Tensor, ...],
    cap: Tensor | None,
    slopes: Tensor | None,
    scale: float,
    size: int,
    tiles: Tiles | None,
) -> tuple[Any, BlockMask, float, Tiles | None]:
    """The score function, the mask, the scale and the tiles.

    logical: [W, M], what each page is to each item. spans: [W, Q, 3], what each row sees and where
    it stands. size: of a page. Two tensors and no more: a captured tensor brings its sizes into the
    kernel, and torch 2.13 writes C++ that confuses sizes where there are many.
    """

    def place(item: Tensor, context: Tensor) -> Tensor:
        return logical[item, context // size] * size + context % size

    def sees(item: Tensor, head: Tensor, row: Tensor, context: Tensor) -> Tensor:
        at = place(item, context)
        return (at >= spans[item, row, 0]) & (at < spans[item, row, 1])

    def biased(score: Tensor, item: Tensor, head: Tensor, row: Tensor, context: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        if slopes is not None:
            score = score + slopes[head] * (place(item, context) - spans[item, row, 2])
        return score

    part_count, part, full_count, full = lists
    # without full blocks the C++ that torch writes does not compile
    block_mask = BlockMask(
        seq_lengths=(query.shape[2], key.shape[2]),
        kv_num_blocks=part_count,
        kv_indices=part,
        full_kv_num_blocks=full_count,
        full_kv_indices=full,
        q_num_blocks=None,
        q_indices=None,
        full_q_num_blocks=None,
        full_q_indices=None,
        BLOCK_SIZE=(query.shape[2], size),
        mask_mod=sees,
    )
    return biased, block_mask, scale, tiles


def mark_sizes(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> None:
    """Tells torch.compile which sizes never differ in a family; items and pages do."""
    logical, spans, lists, _, slopes = rest[:5]
    mark = torch._dynamo.mark_static
    for tensor in (key, value):
        mark(tensor, (0, 1, 3))
    mark(query, (1, 2, 3))
    mark(spans, (1, 2))
    for tensor, dimensions in ((logical, (0, 1)), (spans, (0,))):
        torch._dynamo.decorators.mark_unbacked(tensor, dimensions)
    for tensor in lists:
        mark(tensor, tuple(range(1, 3)))
    if slopes is not None:
        mark(slopes, 0)
