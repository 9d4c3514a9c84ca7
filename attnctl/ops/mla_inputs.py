"""Batches to try latent attention on, with caches as an engine would have filled them.

NaN lies wherever nothing belongs, so that a read out of place shows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import E4M3_MAX, pack_rows
from attnctl.ops.paged_cases import lengths
from attnctl.ops.paged_inputs import Placed, new_tokens, paired_lengths, shuffled_pages
from attnctl.ops.paged_trial import STORAGE

KV_SCALE = 0.25
"""kv_scale of FP8 cases: not 1, so that dropping it is seen."""

PACKED = "fp8_ds_mla"


class LatentBatch(Placed, frozen=True, kw_only=True):
    """One case's tensors.

    query: [T + padding, H, L + R] (absorbed) or [T + padding, H, nope + R]. latent: [T_all, L] and
    rope: [T_all, R], padding rows behind; new: which of them this batch brings. w_uk: [H, nope, L],
    w_uv: [H, Dv, L].
    """

    query: Tensor
    latent: Tensor
    rope: Tensor
    w_uk: Tensor
    w_uv: Tensor
    new: Tensor
    params: Latent

    @property
    def live(self) -> int:
        """Query tokens that belong to a sequence."""
        return sum(lengths(self.case, "queries"))

    def steps(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Rows and slots of two cache writes: what was there before, and this batch's tokens."""
        rows = torch.arange(self.latent.shape[0], device=self.slots.device)
        total = self.slots.shape[0]
        padding = rows[total:]
        old = ~self.new
        slots = torch.cat([self.slots[self.new], torch.full_like(padding, -1)])
        return (
            (rows[:total][old], self.slots[old]),
            (torch.cat([rows[:total][self.new], padding]), slots),
        )


def build(case: Case, device: torch.device | str = "cpu") -> LatentBatch:
    """The tensors of a case. The same case gives the same numbers on every device."""
    generator = torch.Generator().manual_seed(case.seed)
    queries, contexts = paired_lengths(case)
    padding = case.count("padding")
    latent, rope = _rows(case, sum(contexts) + padding, generator)
    query, w_uk, w_uv = _heads(case, sum(queries) + padding, generator)
    if padding:
        # finite, so that one stored where only NaN belongs is seen
        query[-padding:], latent[-padding:], rope[-padding:] = 7.0, 7.0, 7.0
    table, slots, blocks = shuffled_pages(contexts, case.count("page"), generator)
    starts = torch.tensor([0, *queries]).cumsum(0).to(torch.int32)
    return LatentBatch(
        case=case,
        query=query.to(device),
        latent=latent.to(device),
        rope=rope.to(device),
        w_uk=w_uk.to(device),
        w_uv=w_uv.to(device),
        new=new_tokens(queries, contexts).to(device),
        slots=slots.to(device),
        block_table=table.to(device),
        query_start_loc=starts.to(device),
        seq_lens=torch.tensor(contexts, dtype=torch.int32, device=device),
        num_blocks=blocks,
        params=latent_params(case),
    )


def latent_params(case: Case) -> Latent:
    plain_fp8 = str(case["kv_cache_dtype"]) in STORAGE
    return Latent(
        scale=(case.count("nope") + case.count("rope")) ** -0.5,
        kv_lora_rank=case.count("lora"),
        kv_scale=KV_SCALE if plain_fp8 else 1.0,
    )


def _rows(case: Case, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    dtype = getattr(torch, str(case["dtype"]))
    rank, width = case.count("lora"), case.count("rope")
    fused = torch.randn(rows, rank + width, generator=generator)
    if str(case["kv_cache_dtype"]) in STORAGE and rows:
        # beyond the largest E4M3 value: stored as that, never as NaN
        fused[:, 0] = 2 * E4M3_MAX * KV_SCALE
    latent, rope = fused.to(dtype).split([rank, width], dim=1)
    return (latent, rope) if case.params.get("fused") else (latent.contiguous(), rope.contiguous())


def _heads(case: Case, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    dtype = getattr(torch, str(case["dtype"]))
    heads, rank, nope, v = (case.count(name) for name in ("heads", "lora", "nope", "v"))
    absorbed = case.params.get("form", "absorbed") == "absorbed"
    width = (rank if absorbed else nope) + case.count("rope")
    query = torch.randn(tokens, heads, width, generator=generator)
    w_uk = torch.randn(heads, nope, rank, generator=generator) * rank**-0.5
    w_uv = torch.randn(heads, v, rank, generator=generator) * rank**-0.5
    return query.to(dtype), w_uk.to(dtype), w_uv.to(dtype)


def stored_rows(batch: LatentBatch) -> Tensor:
    """What the cache holds after both writes: [N, P, C], NaN (bytes of 255) where nothing is."""
    case = batch.case
    page, total = case.count("page"), batch.slots.shape[0]
    latent, rope = batch.latent[:total].cpu(), batch.rope[:total].cpu()
    name = str(case["kv_cache_dtype"])
    if name == PACKED:
        rows = pack_rows(latent, rope)
        whole = torch.full((batch.num_blocks * page, rows.shape[1]), 255, dtype=torch.uint8)
    else:
        rows = torch.cat([latent, rope], dim=1)
        if name in STORAGE:
            most = torch.finfo(STORAGE[name]).max
            rows = (rows.float() / batch.params.kv_scale).clamp(-most, most).to(STORAGE[name])
        whole = torch.full((batch.num_blocks * page, rows.shape[1]), torch.nan).to(rows.dtype)
    # copied as bytes: not every float dtype can be indexed
    whole.view(torch.uint8)[batch.slots.cpu()] = rows.contiguous().view(torch.uint8)
    return whole.unflatten(0, (batch.num_blocks, page))


def narrowed(query: Tensor, runtime: object, cache: Tensor) -> Tensor:
    """The query as the runtime rounds it before it multiplies, where it says that it does."""
    asked = getattr(runtime, "query_dtype", None)
    if asked is None:
        return query
    dtype = asked(query, cache)
    if dtype is query.dtype:
        return query
    most = torch.finfo(dtype).max
    return query.float().clamp(-most, most).to(dtype).to(query.dtype)


def empty_cache(shape: tuple[int, ...], like: Tensor, device: torch.device | str) -> Tensor:
    """A cache of this shape in the storage dtype of `like`, every element NaN."""
    blank = torch.full(shape, 255 if like.dtype is torch.uint8 else torch.nan)
    return blank.to(like.dtype).to(device)


def written_cache(
    runtime: Any,
    batch: LatentBatch,
    shape: tuple[int, ...],
    stored: Tensor,
    device: torch.device | str,
) -> Tensor:
    """A cache of this shape into which the runtime wrote the batch's rows, in two steps."""
    cache = empty_cache(shape, stored, device)
    for rows, slots in batch.steps():
        metadata = batch.metadata(runtime, slots)
        runtime.write_cache(batch.latent[rows], batch.rope[rows], cache, metadata, batch.params)
    return cache


def cache_fault(cache: Tensor, wanted: Tensor) -> str:
    """Where a cache differs from the specification, "" where it does not."""
    found, wanted = cache.detach().cpu(), wanted.cpu()
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"cache is {found.dtype} {tuple(found.shape)}, not {tuple(wanted.shape)}"
    if wanted.dtype is torch.uint8:
        same = found == wanted
    else:
        held, asked = found.double(), wanted.double()
        same = (held == asked) | (held.isnan() & asked.isnan())
    if bool(same.all()):
        return ""
    block, offset, column = (~same).nonzero()[0].tolist()
    count = int((~same).sum())
    return f"cache: {count} elements differ, first in slot {block}:{offset} column {column}"
