"""The uncompressed form over a cache, some context at a time: what backends share of prefill.

Keys and values of all heads are many times the cached row (DeepSeek V3: 40,960 columns of 576), so
that a long context is uncompressed in parts, and the parts of the output are merged by log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from attnctl.kernels.latent.rows import read_rows
from attnctl.ops.mla import Latent, uncompress
from attnctl.runtime import Metadata

State = tuple[Tensor, Tensor]


class Attend(Protocol):
    """Attention of packed queries [T, H, D] over packed keys and values, with its log-sum-exp.

    key_start_loc: [B + 1] int32. causal: the queries are the last of the keys.
    """

    def __call__(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        key_start_loc: Tensor,
        metadata: Metadata,
        scale: float,
        *,
        causal: bool,
        max_keys: int,
    ) -> State: ...


class Merge(Protocol):
    """attnctl.ops.merge_states, in the inputs' precision.

    Without out and lse into new tensors, or into the first two, which are prefill's own.
    """

    def __call__(
        self,
        out_a: Tensor,
        lse_a: Tensor,
        out_b: Tensor,
        lse_b: Tensor,
        out: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> State: ...


class Span(NamedTuple):
    """Context tokens begins[b] to ends[b] - 1 of each sequence b."""

    begins: list[int]
    ends: list[int]
    causal: bool


class Part(NamedTuple):
    """A span of the context as it lies in the cache: places pages[i], offsets[i] of its rows [S].

    key_starts: [B + 1] int32. max_keys: of a sequence.
    """

    pages: Tensor
    offsets: Tensor
    key_starts: Tensor
    max_keys: int
    causal: bool


class Parts(NamedTuple):
    """A batch's context in parts, and the tokens that belong to its sequences."""

    tokens: int
    parts: tuple[Part, ...]


def parts_of(metadata: Metadata, page: int, chunk: int) -> Parts:
    """What the layers of a batch share. Waits once for the device, to learn the lengths.

    page: tokens of one in the cache. chunk: as in spans().
    """
    lengths, starts = metadata.seq_lens.tolist(), metadata.query_start_loc.tolist()
    queries = [last - first for first, last in pairwise(starts)]
    found = []
    for span in spans(queries, lengths, chunk):
        counts = [end - begin for begin, end in zip(span.begins, span.ends, strict=True)]
        key_starts = torch.tensor([0, *counts], device="cpu").cumsum(0).to(metadata.query_start_loc)
        places = _places(metadata.block_table, page, span)
        found.append(Part(*places, key_starts, max(counts, default=0), span.causal))
    return Parts(starts[-1], tuple(found))


def prefill(
    query: Tensor,
    cache: Tensor,
    metadata: Metadata,
    parts: Parts,
    params: Latent,
    weights: State,
    attend: Attend,
    merge: Merge,
) -> State:
    """out [T, H, Dv] and lse [T, H] of the tokens that belong to sequences.

    query: [T, H, nope + R]. weights: w_uk [H, nope, L] and w_uv [H, Dv, L], in the dtype in which
    keys and values are made.
    """
    state: State | None = None
    for part in parts.parts:
        stored = read_rows(cache, part.pages, part.offsets)
        keys, values = uncompress(stored.to(weights[0].dtype) * params.kv_scale, *weights)
        found = attend(
            query[: parts.tokens],
            keys,
            values,
            part.key_starts,
            metadata,
            params.scale,
            causal=part.causal,
            max_keys=part.max_keys,
        )
        state = found if state is None else merge(*state, *found)
    assert state is not None  # the last span is there whatever the lengths
    return state


def spans(queries: list[int], lengths: list[int], chunk: int) -> Iterator[Span]:
    """The context in parts of at most `chunk` tokens a sequence, then the batch's own tokens.

    Sequences without query tokens have no part. chunk 0: everything at once.
    """
    lengths = [length if count else 0 for count, length in zip(queries, lengths, strict=True)]
    before = [length - count for count, length in zip(queries, lengths, strict=True)]
    if not chunk:
        yield Span([0] * len(lengths), lengths, True)
        return
    for first in range(0, max(before, default=0), chunk):
        begins = [min(first, most) for most in before]
        yield Span(begins, [min(first + chunk, most) for most in before], False)
    yield Span(before, lengths, True)


def _places(block_table: Tensor, size: int, span: Span) -> tuple[Tensor, Tensor]:
    """Page and offset of a span's rows, all sequences packed: [S] each."""
    begins, ends = torch.tensor((span.begins, span.ends), dtype=torch.int64, device="cpu")
    counts = ends - begins
    owner = torch.repeat_interleave(counts)
    # a row's place among all of them, from where its sequence's first one stands
    first = counts.cumsum(0) - counts - begins
    position = torch.arange(owner.shape[0], device="cpu") - first[owner]
    at = torch.stack([owner, position]).to(block_table.device)
    return block_table[at[0], at[1] // size].long(), at[1] % size
