"""A batch of gated-delta-rule rows as vLLM 0.33 splits it: speculative rows apart from the others.

From query lengths and drafts per request come the token order, the offsets and the state columns of
both halves. All tensors are on the host; an engine that captures graphs pads with `padded`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.runtime import StateMetadata


class GdnMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The split of one batch of B requests, K drafts at most; None where there is no such half.

    has_initial_state: [non-speculative rows] bool, only with prefills. spec_sequence_masks: [B]
    bool. *_query_start_loc: [rows + 1] int32 over the half's own tokens. spec_state_indices_tensor:
    [rows, 1 + K]; non_spec_state_indices_tensor: [rows], column 0. *_token_indx: where the half's
    tokens lie in the packed batch. num_accepted_tokens: [speculative rows], at least 1.
    uniform_spec_len: tokens of every speculative row where all have as many. max_prefill_len: of
    the longest non-speculative row.
    """

    num_prefills: int
    num_prefill_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_spec_decodes: int
    num_spec_decode_tokens: int
    has_initial_state: Tensor | None = None
    spec_sequence_masks: Tensor | None = None
    spec_query_start_loc: Tensor | None = None
    non_spec_query_start_loc: Tensor | None = None
    spec_state_indices_tensor: Tensor | None = None
    non_spec_state_indices_tensor: Tensor | None = None
    spec_token_indx: Tensor | None = None
    non_spec_token_indx: Tensor | None = None
    num_accepted_tokens: Tensor | None = None
    uniform_spec_len: int | None = None
    max_prefill_len: int = 0


def split(
    query_start_loc: Tensor,
    seq_lens: Tensor,
    state_indices: Tensor,
    *,
    num_drafts: Sequence[int] | None = None,
    num_accepted: Tensor | None = None,
    num_spec: int = 0,
) -> GdnMetadata:
    """The halves of a batch whose decodes come first.

    query_start_loc: [B + 1]. seq_lens: [B], context with this batch's tokens. state_indices:
    [B, 1 + K]. num_drafts: per request, -1 where it is no verification; 0 still is one.
    num_accepted: [B], needed where a row is speculative. InputError where it is missing.
    """
    lengths = query_start_loc.diff()
    drafted = [-1] * len(lengths) if num_drafts is None else list(num_drafts)
    drafts = torch.tensor(drafted, device="cpu")
    masks = drafts >= 0
    if num_spec == 0 or not bool(masks.any()):
        return _plain(query_start_loc, seq_lens, state_indices)
    if num_accepted is None:
        raise InputError("GDN_ATTN: speculative rows need num_accepted, the tokens that stayed")
    return _speculative(lengths, seq_lens, state_indices, masks, num_accepted, num_spec)


def _plain(starts: Tensor, seq_lens: Tensor, state_indices: Tensor) -> GdnMetadata:
    """No row is under verification: decodes are the leading single tokens that have a state."""
    lengths = starts.diff()
    decode = (lengths == 1) & (seq_lens > lengths)
    decodes = int(decode.long().cumprod(0).sum())
    # graph padding: rows of length zero at the end are neither decodes nor prefills
    live = int((lengths > 0).nonzero().max()) + 1 if bool((lengths > 0).any()) else 0
    prefills = max(live - decodes, 0)
    total = int(starts[-1])
    return GdnMetadata(
        num_prefills=prefills,
        num_prefill_tokens=total - decodes,
        num_decodes=decodes,
        num_decode_tokens=decodes,
        num_spec_decodes=0,
        num_spec_decode_tokens=0,
        has_initial_state=seq_lens > lengths if prefills else None,
        max_prefill_len=int(lengths.max()) if prefills else 0,
        non_spec_query_start_loc=starts,
        non_spec_state_indices_tensor=state_indices[:, 0],
    )


def _speculative(
    lengths: Tensor,
    seq_lens: Tensor,
    state_indices: Tensor,
    masks: Tensor,
    num_accepted: Tensor,
    num_spec: int,
) -> GdnMetadata:
    """Rows under verification keep 1 + K columns; decodes beside them become prefills."""
    others = lengths[~masks]
    spec = lengths[masks]
    live = int((others > 0).sum())
    total, of_spec = int(lengths.sum()), int(spec.sum())
    alone = live == 0
    owner = torch.repeat_interleave(masks, lengths.long())
    uniform = int(spec[0]) if bool((spec == spec[0]).all()) else None
    return GdnMetadata(
        num_prefills=live,
        num_prefill_tokens=total - of_spec,
        num_decodes=0,
        num_decode_tokens=0,
        num_spec_decodes=int(masks.sum()),
        num_spec_decode_tokens=of_spec,
        has_initial_state=None if alone else (seq_lens > lengths)[~masks],
        spec_sequence_masks=masks,
        spec_query_start_loc=_offsets(spec),
        non_spec_query_start_loc=None if alone else _offsets(others),
        spec_state_indices_tensor=state_indices[masks][:, : 1 + num_spec],
        non_spec_state_indices_tensor=None if alone else state_indices[~masks][:, 0],
        spec_token_indx=owner.nonzero()[:, 0],
        non_spec_token_indx=(~owner).nonzero()[:, 0],
        num_accepted_tokens=num_accepted[masks],
        uniform_spec_len=uniform,
        max_prefill_len=0 if alone else int(others.max()),
    )


def _offsets(lengths: Tensor) -> Tensor:
    zero = lengths.new_zeros(1)
    return torch.cat([zero, lengths.cumsum(0)]).to(torch.int32)


def padded(metadata: GdnMetadata, rows: int, null_slot: int = -1) -> GdnMetadata:
    """A speculative batch with as many rows as a captured graph has: inert ones at the end.

    They own the null slot, accept one token, and repeat the last offset. InputError: more rows are
    live than the graph has, or the batch is not speculative alone.
    """
    slots, accepted = metadata.spec_state_indices_tensor, metadata.num_accepted_tokens
    starts = metadata.spec_query_start_loc
    if slots is None or accepted is None or starts is None or metadata.num_prefills:
        raise InputError("GDN_ATTN: only batches of speculative rows alone are padded for a graph")
    missing = rows - slots.shape[0]
    if missing < 0:
        raise InputError(f"GDN_ATTN: {slots.shape[0]} rows do not fit a graph of {rows}")
    return msgspec.structs.replace(
        metadata,
        spec_state_indices_tensor=torch.cat(
            [slots, slots.new_full((missing, slots.shape[1]), null_slot)]
        ),
        num_accepted_tokens=torch.cat([accepted, accepted.new_ones(missing)]),
        spec_query_start_loc=torch.cat([starts, starts[-1:].expand(missing)]),
    )


Piece = tuple["Tensor | slice", StateMetadata]


def pieces(metadata: GdnMetadata) -> list[Piece]:
    """Tokens and batch of each kernel call: decodes, prefills, speculative rows, as there are any.

    Tokens are a slice of the packed batch, or an index where the halves lie mixed.
    """
    found: list[Piece] = []
    starts, slots = metadata.non_spec_query_start_loc, metadata.non_spec_state_indices_tensor
    if starts is not None and slots is not None:
        known = metadata.has_initial_state
        if known is None:
            known = torch.ones(slots.shape, dtype=torch.bool, device=slots.device)
        whole = StateMetadata(
            query_start_loc=starts,
            state_indices=slots[:, None],
            has_initial_state=known,
            max_query_len=metadata.max_prefill_len or 1,
        )
        if metadata.num_decodes and metadata.num_prefills:
            found += _peeled(metadata, whole)
        elif metadata.non_spec_token_indx is not None:
            found.append((metadata.non_spec_token_indx, whole))
        else:
            found.append((slice(None), whole))
    if metadata.num_spec_decodes:
        found.append(_verified(metadata))
    return found


def _peeled(metadata: GdnMetadata, whole: StateMetadata) -> list[Piece]:
    """Leading decodes go to the kernel for single tokens; offsets of the prefills are rebased."""
    rows, tokens = metadata.num_decodes, metadata.num_decode_tokens
    decodes = msgspec.structs.replace(
        whole,
        query_start_loc=whole.query_start_loc[: rows + 1],
        state_indices=whole.state_indices[:rows],
        has_initial_state=whole.has_initial_state[:rows],
        max_query_len=1,
    )
    prefills = msgspec.structs.replace(
        whole,
        query_start_loc=whole.query_start_loc[rows:] - tokens,
        state_indices=whole.state_indices[rows:],
        has_initial_state=whole.has_initial_state[rows:],
    )
    return [(slice(0, tokens), decodes), (slice(tokens, None), prefills)]


def _verified(metadata: GdnMetadata) -> Piece:
    slots, starts = metadata.spec_state_indices_tensor, metadata.spec_query_start_loc
    assert slots is not None
    assert starts is not None
    marks = torch.ones(slots.shape[0], dtype=torch.bool, device=slots.device)
    batch = StateMetadata(
        query_start_loc=starts,
        state_indices=slots,
        has_initial_state=marks,
        max_query_len=slots.shape[1],
        num_accepted=metadata.num_accepted_tokens,
        speculative=marks,
        num_spec=slots.shape[1] - 1,
    )
    mixed = metadata.num_prefills > 0
    index = metadata.spec_token_indx if mixed else None
    return (slice(None) if index is None else index), batch
