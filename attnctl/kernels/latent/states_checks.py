"""What merging of states and the indexer take for granted of a call, said before kernels run.

Sentences begin with the name of the backend that asks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import (
    FLOATS,
    CheckedMetadata,
    check_tensors,
    check_tokens,
    refuse,
)
from attnctl.kernels.metadata_checks import check_places, checked_batch
from attnctl.kernels.paged.checks import check_slots, check_spread, same_device
from attnctl.ops.indexer import Indexing, groups_of, head_dim_of
from attnctl.runtime import Metadata

INDEX_QUERIES = FLOATS | {torch.float8_e4m3fn}


def check_states(
    name: str,
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    out: Tensor | None,
    lse: Tensor | None,
) -> None:
    """InputError: the two sides of a merge, and where it goes, are not of one shape and device."""
    given = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    given |= {} if out is None else {"out": out}
    check_tensors(name, **given, **({} if lse is None else {"lse": lse}))
    shape = out_a.shape
    if len(shape) != 3:
        refuse(name, f"out_a must be [T, H, Dv]; it is {list(shape)}")
    sides = {"out_a": out_a, "out_b": out_b, "out": out}
    sums = {"lse_a": lse_a, "lse_b": lse_b, "lse": lse}
    for what, tensor in (sides | sums).items():
        if tensor is None:
            continue
        wanted, kinds = (shape, FLOATS) if what in sides else (shape[:2], FLOATS | LSE)
        if what == "lse":
            kinds = frozenset({torch.float32})
        if tensor.shape != wanted or tensor.dtype not in kinds:
            refuse(
                name,
                f"{what} must be {list(wanted)} of {' or '.join(sorted(map(str, kinds)))}; "
                f"it is {list(tensor.shape)} {tensor.dtype}",
            )
        same_device(name, out_a, **{what: tensor})
    if out is not None:
        check_spread(name, out)
        if out.stride(2) != 1:
            refuse(name, f"out's last dimension must be dense; its stride is {out.stride(2)}")
    if lse is not None:
        check_spread(name, lse)


LSE = frozenset({torch.float64})
"""A log-sum-exp may come in double precision too."""


def check_index_keys(
    name: str, key: Tensor, cache: Tensor, metadata: Metadata, params: Indexing
) -> Metadata:
    """The batch. InputError: rows and slots of index keys do not fit together, or not the cache."""
    _check_kind(name, params)
    metadata = checked_batch(name, metadata)
    check_tensors(name, key=key, cache=cache)
    check_spread(name, cache, "tokens of an index cache that is written")
    width = _check_index_cache(name, cache)
    if key.dim() != 2 or key.shape[1] != width or key.dtype not in FLOATS:
        refuse(
            name,
            f"index keys must be [T, {width}] of float32, float16 or bfloat16, as the index cache; "
            f"they are {list(key.shape)} {key.dtype}",
        )
    slots = metadata.slot_mapping
    same_device(name, cache, key=key, slot_mapping=slots)
    last = metadata.last_slot if isinstance(metadata, CheckedMetadata) else -1
    check_slots(name, cache, slots, key.shape[0], last, of_cache="index cache")
    return metadata


def check_indexing(
    name: str,
    query: Tensor,
    weights: Tensor,
    cache: Tensor,
    metadata: Metadata,
    params: Indexing,
    out: Tensor | None = None,
) -> Metadata:
    """The batch. InputError: queries, weights, cache, batch and output do not fit together."""
    _check_kind(name, params)
    metadata = checked_batch(name, metadata)
    check_tensors(name, query=query, weights=weights, cache=cache)
    width = _check_index_cache(name, cache)
    shape = query.shape
    if len(shape) != 3 or shape[2] != width or query.dtype not in INDEX_QUERIES:
        refuse(
            name,
            f"index queries must be [T, Hi, {width}] of a float dtype or float8_e4m3fn, as the "
            f"index cache; they are {list(shape)} {query.dtype}",
        )
    if weights.shape != shape[:2] or not weights.dtype.is_floating_point:
        refuse(
            name,
            f"weights must be {list(shape[:2])} of a float dtype; "
            f"they are {list(weights.shape)} {weights.dtype}",
        )
    same_device(name, query, weights=weights, cache=cache, seq_lens=metadata.seq_lens)
    if isinstance(metadata, CheckedMetadata):
        check_tokens(name, metadata.rows, shape[0])
    check_places(name, metadata, cache)
    if out is not None:
        _check_picks(name, out, query, params.topk)
    return metadata


def _check_kind(name: str, params: Indexing) -> None:
    if not isinstance(params, Indexing):
        refuse(name, f"params must be an attnctl.ops.indexer.Indexing; it is {shown(params)}")


def _check_picks(name: str, out: Tensor, query: Tensor, topk: int) -> None:
    check_tensors(name, out=out)
    wanted = (query.shape[0], topk)
    if out.shape != wanted or out.dtype is not torch.int32 or out.device != query.device:
        refuse(
            name,
            f"out must be {list(wanted)} int32 on {query.device}; "
            f"it is {list(out.shape)} {out.dtype} on {out.device}",
        )
    check_spread(name, out)
    if out.stride(1) != 1:
        refuse(name, f"out's last dimension must be dense; its stride is {out.stride(1)}")


def _check_index_cache(name: str, cache: Tensor) -> int:
    """D of the keys that the cache holds."""
    width = head_dim_of(cache) if cache.dim() == 3 else 0
    of_keys = width > 0 and width + 4 * groups_of(width) == cache.shape[2]
    if not of_keys or cache.dtype is not torch.uint8 or 0 in cache.shape:
        refuse(
            name,
            "the index cache must be torch.uint8, as index_cache_shape gives it: (N, P, bytes); "
            f"it is {list(cache.shape)} of {cache.dtype}",
        )
    if cache.stride()[1:] != (cache.shape[2], 1):
        refuse(
            name,
            "the bytes of a block of the index cache must lie together; "
            f"its strides are {list(cache.stride())}",
        )
    return width
