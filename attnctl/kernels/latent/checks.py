"""What every backend of latent attention takes for granted of a call, said before kernels run."""

from __future__ import annotations

from numbers import Integral, Real

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
from attnctl.kernels.paged.checks import check_slots, check_spread, same_device
from attnctl.kernels.size_checks import check_block_size
from attnctl.ops.mla import Latent
from attnctl.ops.packed_rows import row_bytes
from attnctl.runtime import Metadata

STORED = FLOATS | {torch.float8_e4m3fn, torch.float8_e5m2}


def check_sizes(
    name: str, num_blocks: int, block_size: int, rank: int, rope: int, multiple: int
) -> None:
    """InputError: a size of cache_shape that is none, or a block size that kernels do not take."""
    sizes = {"num_blocks": num_blocks, "kv_lora_rank": rank, "qk_rope_head_dim": rope}
    for what, size in {**sizes, "block_size": block_size}.items():
        # a block size of 0 or less has its own sentence, and a model without rope has 0 columns
        least = {"qk_rope_head_dim": 0, "block_size": size}.get(what, 1)
        if not isinstance(size, Integral) or isinstance(size, bool) or size < least:
            refuse(name, f"{what} must be an integer of {least} or more; it is {size!r}")
    check_block_size(name, block_size, multiple)


def check_cache(
    name: str, cache: Tensor, width: int, params: Latent, multiple: int, packed: bool
) -> None:
    """InputError: no cache [N, P, C] for rows of L + R = `width` columns, or one of another layout.

    packed: whether the backend reads torch.uint8 rows of fp8_ds_mla.
    """
    if not isinstance(params, Latent):
        refuse(name, f"params must be an attnctl.ops.mla.Latent; it is {shown(params)}")
    check_tensors(name, cache=cache)
    rank = params.kv_lora_rank
    if not isinstance(rank, Integral) or not 0 < rank <= width:
        refuse(name, f"kv_lora_rank must be a part of the row's {width} columns; it is {rank!r}")
    if not isinstance(params.kv_scale, Real):
        refuse(name, f"kv_scale must be one number; it is {type(params.kv_scale).__name__}")
    stored = STORED | {torch.uint8} if packed else STORED
    if cache.dim() != 3 or cache.stride(2) != 1 or cache.dtype not in stored:
        says = f"it is {list(cache.shape)} of {cache.dtype}"
        if not packed and cache.dtype is torch.uint8:
            says += ", whose packed rows sparse backends read"
        refuse(name, f"the cache must be [N, P, C], its last dimension dense; {says}")
    bytes_ = cache.dtype is torch.uint8
    wanted = row_bytes(rank, width - rank) if bytes_ else width
    if cache.shape[2] != wanted:
        refuse(
            name,
            f"cache {tuple(cache.shape)} and rows of {width} columns do not fit with "
            f"kv_lora_rank {rank}: want [T, H, L + R] and [N, P, {wanted}]",
        )
    if cache.shape[1] < 1 or cache.shape[1] % multiple:
        refuse(
            name,
            f"the cache's blocks must hold a multiple of {multiple} tokens; they hold "
            f"{cache.shape[1]}. Pass the cache as cache_shape gives it: (N, P, C)",
        )


def check_rows(name: str, latent: Tensor, rope: Tensor, cache: Tensor, metadata: Metadata) -> None:
    """InputError: the rows of a write do not fit together, or lie elsewhere than the cache."""
    check_tensors(name, latent=latent, rope=rope, cache=cache)
    check_spread(name, cache, "tokens of a cache that is written")
    if latent.dim() != 2 or rope.dim() != 2 or latent.shape[0] != rope.shape[0]:
        refuse(
            name,
            "latent must be [T, L] and rope [T, R]; "
            f"they are {list(latent.shape)} and {list(rope.shape)}",
        )
    if latent.dtype not in FLOATS or rope.dtype is not latent.dtype:
        refuse(
            name,
            "latent and rope must be both float32, float16 or bfloat16; "
            f"they are {latent.dtype} and {rope.dtype}",
        )
    same_device(name, cache, latent=latent, rope=rope, slot_mapping=metadata.slot_mapping)


def check_row_slots(name: str, latent: Tensor, cache: Tensor, metadata: Metadata) -> None:
    """InputError: more slots than rows, or one outside the cache."""
    last = metadata.last_slot if isinstance(metadata, CheckedMetadata) else -1
    check_slots(name, cache, metadata.slot_mapping, latent.shape[0], last)


def check_query(name: str, query: Tensor, cache: Tensor, metadata: Metadata) -> None:
    """InputError: no query [T, H, D], one of another device, or one shorter than its batch."""
    check_tensors(name, query=query, cache=cache)
    if query.dim() != 3 or query.dtype not in FLOATS:
        refuse(
            name,
            "query must be [T, H, D] of float32, float16 or bfloat16; "
            f"it is {list(query.shape)} {query.dtype}",
        )
    if not cache.dim():
        refuse(name, "the cache must be [N, P, C]; it is one number")
    same_device(name, query, cache=cache, seq_lens=metadata.seq_lens)
    if isinstance(metadata, CheckedMetadata):
        check_tokens(name, metadata.rows, query.shape[0])


def check_out(name: str, query: Tensor, width: int, out: Tensor | None, lse: Tensor | None) -> None:
    """InputError: tensors given for the result, [T, H, width] and [T, H], do not fit the query."""
    wanted = (query.shape[0], query.shape[1], width)
    for what, tensor, shape, dtype in (
        ("out", out, wanted, query.dtype),
        ("lse", lse, wanted[:2], torch.float32),
    ):
        if tensor is None:
            continue
        check_tensors(name, **{what: tensor})
        if tensor.shape != shape or tensor.dtype is not dtype or tensor.device != query.device:
            refuse(
                name,
                f"{what} must be {list(shape)} {dtype} on {query.device}; "
                f"it is {list(tensor.shape)} {tensor.dtype} on {tensor.device}",
            )
        check_spread(name, tensor)
    if out is not None and out.stride(2) != 1:
        refuse(name, f"out's last dimension must be dense; its stride is {out.stride(2)}")


def check_weights(
    name: str, query: Tensor, w_uk: Tensor, w_uv: Tensor, width: int, params: Latent, chunk: int
) -> None:
    """InputError: weights that do not uncompress the cache's rows, of `width` columns."""
    check_tensors(name, w_uk=w_uk, w_uv=w_uv)
    heads, rank = query.shape[1], params.kv_lora_rank
    nope = query.shape[2] - (width - rank)
    if w_uk.shape != (heads, nope, rank) or w_uv.dim() != 3 or w_uv.shape[::2] != (heads, rank):
        refuse(
            name,
            f"w_uk must be [{heads}, {nope}, {rank}] and w_uv [{heads}, Dv, {rank}] for queries of "
            f"{query.shape[2]} columns; they are {list(w_uk.shape)} and {list(w_uv.shape)}",
        )
    if w_uk.dtype not in FLOATS or w_uv.dtype is not w_uk.dtype:
        refuse(
            name,
            "w_uk and w_uv must be both float32, float16 or bfloat16; "
            f"they are {w_uk.dtype} and {w_uv.dtype}",
        )
    same_device(name, query, w_uk=w_uk, w_uv=w_uv)
    if not isinstance(chunk, Integral) or chunk < 0:
        refuse(name, f"chunk must be 0, or the context tokens taken at a time; it is {chunk!r}")


def check_named(name: str, slots: Tensor, query: Tensor) -> None:
    """InputError: no list of slots [T, K] int32 for a query's T tokens."""
    check_tensors(name, slots=slots)
    if slots.dim() != 2 or slots.dtype is not torch.int32 or slots.shape[0] != query.shape[0]:
        refuse(
            name,
            f"slots must be [{query.shape[0]}, K] int32, a row for each query token; "
            f"they are {list(slots.shape)} {slots.dtype}",
        )
    same_device(name, query, slots=slots)


def check_cpu(name: str, tensor: Tensor) -> None:
    """InputError: a tensor that does not lie on the processor, or something that is none."""
    if not isinstance(tensor, Tensor):
        refuse(name, f"its tensors must lie on the cpu; one is no tensor, but {shown(tensor)}")
    if not tensor.is_cpu:
        refuse(name, f"its tensors must lie on the cpu; one is on {tensor.device}")
