"""The lightning indexer of DeepSeek V3.2: which context tokens a query attends to; the reference.

Query token t has Hi index heads of width D and a weight per head, context token s one index key:
  logit[t, s] = scale * sum over h of w[t, h] * relu(q[t, h] . k[s]).
It picks the K context tokens of the largest logits among those at or before its own position;
between equal logits, the one that comes first. The result lists them in the order of the context,
which makes it unique; where fewer than K are visible all are listed, and -1 fills the row.

Keys are cached as float8_e4m3fn with one float32 scale per 128 columns. A page holds the bytes of
its keys first and its scales behind them (DeepGEMM's layout), so that both can be read in whole
vectors: of P * (D + 4 * groups) bytes the first P * D are keys. Queries come in the model's dtype,
or as float8_e4m3fn whose scales the caller has multiplied into the weights.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.arguments import refuse_no_count
from attnctl.ops.mla import causal, context_rows
from attnctl.ops.packed_rows import GROUP, quantize_groups
from attnctl.ops.paged_params import settle_indexing


class Indexing(msgspec.Struct, frozen=True, kw_only=True):
    """topk: K. scale: of the logits, positive. ue8m0: key scales are powers of two.

    InputError where a value makes no indexer.
    """

    topk: int
    scale: float
    ue8m0: bool = False

    def __post_init__(self) -> None:
        settle_indexing(self)


def index_cache_shape(num_blocks: int, block_size: int, head_dim: int) -> tuple[int, int, int]:
    """(N, P, D + 4 * groups) uint8: 132 bytes a token for D = 128. InputError: a size is none."""
    sizes = {"num_blocks": num_blocks, "block_size": block_size, "head_dim": head_dim}
    for name, size in sizes.items():
        refuse_no_count(name, size, 1)
    return num_blocks, block_size, head_dim + 4 * groups_of(head_dim)


def groups_of(head_dim: int) -> int:
    return -(-head_dim // GROUP)


def head_dim_of(cache: Tensor) -> int:
    """D of an index cache [N, P, D + 4 * ceil(D / 128)]."""
    width = int(cache.shape[2])
    return width - 4 * -(-width // (GROUP + 4))


def key_planes(cache: Tensor) -> tuple[Tensor, Tensor]:
    """Views of an index cache: keys [N, P, D] float8_e4m3fn, scales [N, P, groups] float32."""
    blocks, page, _ = cache.shape
    width = head_dim_of(cache)
    flat = cache.view(blocks, -1)
    keys = flat[:, : page * width].view(torch.float8_e4m3fn).unflatten(1, (page, width))
    scales = flat[:, page * width :].view(torch.float32).unflatten(1, (page, groups_of(width)))
    return keys, scales


def write_index_keys(key: Tensor, cache: Tensor, slots: Tensor, params: Indexing) -> None:
    """Stores index keys [T, D] in their slots [<= T]; slot -1 and rows past the slots: nothing."""
    page = cache.shape[1]
    rows = (slots >= 0).nonzero()[:, 0]
    where = slots[rows].long()
    values, scales = quantize_groups(key[rows], GROUP, params.ue8m0)
    keys, key_scales = key_planes(cache)
    keys.view(torch.uint8)[where // page, where % page] = values.view(torch.uint8)
    key_scales[where // page, where % page] = scales


def index_logits(
    query: Tensor,
    weights: Tensor,
    cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    params: Indexing,
    *,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """[T, longest context] in `dtype`; -inf where the context token is not visible.

    query: [T, Hi, D]. weights: [T, Hi] float32. cache: [N, P, D + 4 * groups] uint8. block_table:
    [B, pages] int. query_start_loc: [B + 1] int. seq_lens: [B] int.
    """
    lengths, starts = seq_lens.tolist(), query_start_loc.tolist()
    logits = query.new_full((query.shape[0], max([0, *lengths])), -torch.inf, dtype=dtype)
    keys, scales = key_planes(cache)
    for b, length in enumerate(lengths):
        first, last = starts[b], starts[b + 1]
        if first == last:
            continue
        found = _dequantized(keys, scales, block_table[b], length, dtype)
        products = torch.einsum("thd,sd->ths", query[first:last].to(dtype), found).relu()
        rows = torch.einsum("th,ths->ts", weights[first:last].to(dtype), products) * params.scale
        seen = causal(last - first, length, query.device)
        logits[first:last, :length] = rows.masked_fill(~seen, -torch.inf)
    return logits


def pick_topk(logits: Tensor, topk: int) -> Tensor:
    """[T, K] int32: the columns of each row's K largest logits, ascending, then -1.

    -inf is no candidate; between equal logits the lower column wins.
    """
    tokens, columns = logits.shape
    taken = min(topk, columns)
    order = logits.sort(dim=1, descending=True, stable=True).indices[:, :taken]
    visible = logits.gather(1, order) > -torch.inf
    # beyond every column, so that it sorts behind them
    order = torch.where(visible, order, columns).sort(dim=1).values
    picked = logits.new_full((tokens, topk), -1, dtype=torch.int32)
    picked[:, :taken] = torch.where(order < columns, order, -1).to(torch.int32)
    return picked


def _dequantized(
    keys: Tensor, scales: Tensor, pages: Tensor, length: int, dtype: torch.dtype
) -> Tensor:
    width = keys.shape[2]
    values = context_rows(keys.view(torch.uint8), pages, 0, length).view(keys.dtype).to(dtype)
    per_group = context_rows(scales, pages, 0, length).to(dtype)
    return values * per_group.repeat_interleave(GROUP, dim=1)[:, :width]
