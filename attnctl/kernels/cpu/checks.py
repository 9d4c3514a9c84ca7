"""What CPU_ATTN's kernels take for granted, said before they run: they read by bare addresses."""

from __future__ import annotations

from numbers import Integral
from typing import NoReturn

import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata

BLOCK_MULTIPLE = 32
HEAD_MULTIPLE = 8
HEAD_LEAST = 16
FLOATS = frozenset({torch.float32, torch.float16, torch.bfloat16})
STORED = FLOATS | {torch.float8_e4m3fn, torch.float8_e5m2, torch.int8}
INTEGERS = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})


class CheckedMetadata(Metadata, frozen=True, kw_only=True):
    """A batch whose tensors have been read once, and what a call compares with its cache.

    rows: end of the last sequence in the query. longest: context of the longest sequence that has
    queries. first_block, last_block: least and greatest page of the table, 0 and -1 without any.
    last_slot: the greatest slot, -1 without any.
    """

    rows: int
    longest: int
    first_block: int
    last_block: int
    last_slot: int


def refuse(what: str) -> NoReturn:
    raise InputError(f"CPU_ATTN: {what}")


def check_sizes(
    num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, head_size_v: int
) -> None:
    """InputError: a size of cache_shape that the kernels do not take."""
    counts = {"num_blocks": num_blocks, "block_size": block_size, "num_kv_heads": num_kv_heads}
    widths = {"head_size": head_size, "head_size_v": head_size_v}
    for name, size in {**counts, **widths}.items():
        # a block size of 0 or less has its own sentence, which names the nearest that works
        least = 1 if name != "block_size" else size
        if not isinstance(size, Integral) or isinstance(size, bool) or size < least:
            refuse(f"{name} must be a positive integer; it is {size!r}")
    if block_size < 1 or block_size % BLOCK_MULTIPLE:
        nearest = max(BLOCK_MULTIPLE, -(-block_size // BLOCK_MULTIPLE) * BLOCK_MULTIPLE)
        refuse(
            f"block_size must be a multiple of {BLOCK_MULTIPLE}; it is {block_size}. Try {nearest}"
        )
    for name, size in widths.items():
        if size < HEAD_LEAST or size % HEAD_MULTIPLE:
            refuse(
                f"{name} must be a multiple of {HEAD_MULTIPLE} and at least {HEAD_LEAST}; "
                f"it is {size}"
            )


def check_batch(metadata: Metadata) -> CheckedMetadata:
    """The batch in the kernels' integer types. InputError: its tensors contradict each other."""
    for name, dimensions in (
        ("query_start_loc", 1),
        ("seq_lens", 1),
        ("block_table", 2),
        ("slot_mapping", 1),
    ):
        _check_integers(name, getattr(metadata, name), dimensions)
    starts, lens = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
    if len(starts) != len(lens) + 1:
        refuse(
            f"query_start_loc has {len(starts)} entries for {len(lens)} seq_lens; "
            f"it needs {len(lens) + 1}"
        )
    table, slots = metadata.block_table, metadata.slot_mapping
    if table.shape[0] != len(lens):
        refuse(f"block_table has {table.shape[0]} rows for {len(lens)} seq_lens; it needs one each")
    longest = _check_lengths(starts, lens, metadata)
    first, last = (int(x) for x in table.aminmax()) if table.numel() else (0, -1)
    return CheckedMetadata(
        query_start_loc=metadata.query_start_loc.to(torch.int32).contiguous(),
        seq_lens=metadata.seq_lens.to(torch.int32).contiguous(),
        block_table=table.to(torch.int32).contiguous(),
        slot_mapping=slots.to(torch.int64).contiguous(),
        max_query_len=metadata.max_query_len,
        max_seq_len=metadata.max_seq_len,
        rows=starts[-1],
        longest=longest,
        first_block=first,
        last_block=last,
        last_slot=int(slots.max()) if slots.numel() else -1,
    )


def _check_integers(name: str, tensor: Tensor, dimensions: int) -> None:
    if not isinstance(tensor, Tensor) or tensor.dtype not in INTEGERS:
        refuse(
            f"{name} must be a tensor of integers; it is {getattr(tensor, 'dtype', type(tensor))}"
        )
    if tensor.dim() != dimensions or not tensor.is_cpu:
        refuse(
            f"{name} must have {dimensions} dimension{'s'[: dimensions - 1]} and lie on the cpu; "
            f"it is {list(tensor.shape)} on {tensor.device}"
        )


def _check_lengths(starts: list[int], lens: list[int], metadata: Metadata) -> int:
    """The longest context that is read."""
    if starts[0] < 0:
        refuse(f"query_start_loc must not start below 0; it starts at {starts[0]}")
    longest = most = 0
    for b, length in enumerate(lens):
        queries = starts[b + 1] - starts[b]
        if queries < 0:
            refuse(
                f"query_start_loc must not decrease; entry {b + 1} is {starts[b + 1]} "
                f"after {starts[b]}"
            )
        if length < queries or length < 0:
            refuse(
                f"seq_lens counts the batch's own tokens too; sequence {b} has {queries} query "
                f"tokens and seq_lens[{b}] is {length}, which must be {queries} or more"
            )
        if queries:
            longest, most = max(longest, length), max(most, queries)
    if metadata.max_seq_len < longest:
        refuse(
            f"max_seq_len must be {longest} or more, the longest context; {metadata.max_seq_len=}"
        )
    if metadata.max_query_len < most:
        refuse(f"max_query_len must be {most} or more, the most queries; {metadata.max_query_len=}")
    return longest


def check_write(
    key: Tensor, value: Tensor, cache: Tensor, metadata: CheckedMetadata, params: Paged
) -> None:
    """InputError: rows, slots and cache of a write do not fit together."""
    check_cache(cache, params)
    blocks, page, kv_heads, width = cache.shape
    key_shape, value_shape = key.shape, value.shape
    if (
        len(key_shape) != 3
        or len(value_shape) != 3
        or key_shape[:2] != value_shape[:2]
        or key_shape[1] != kv_heads
        or key_shape[2] + value_shape[2] != width
    ):
        refuse(
            f"key must be [T, {kv_heads}, D] and value [T, {kv_heads}, Dv] with D + Dv = {width}, "
            f"as in the cache; they are {list(key_shape)} and {list(value_shape)}"
        )
    if key.dtype not in FLOATS or value.dtype is not key.dtype or not (key.is_cpu and value.is_cpu):
        refuse(
            "key and value must be both float32, float16 or bfloat16 on the cpu; "
            f"they are {key.dtype} on {key.device} and {value.dtype} on {value.device}"
        )
    if metadata.slot_mapping.shape[0] > key_shape[0]:
        refuse(
            f"slot_mapping has {metadata.slot_mapping.shape[0]} entries for {key_shape[0]} rows of "
            "key; it may not have more than rows"
        )
    if metadata.last_slot >= blocks * page:
        refuse(
            f"slot {metadata.last_slot} of slot_mapping lies outside the cache; "
            f"{blocks} blocks of {page} end at slot {blocks * page - 1}"
        )


def check_cache(cache: Tensor, params: Paged) -> None:
    """InputError: no cache of cache_shape's, or scales that do not belong to it."""
    shape, dtype = cache.shape, cache.dtype
    if len(shape) != 4 or cache.stride(3) != 1 or dtype not in STORED or not cache.is_cpu:
        refuse(
            "the cache must be (N, P, Hk, D + Dv) on the cpu, its last dimension dense; "
            f"it is {list(shape)} of {dtype} on {cache.device}"
        )
    if shape[1] < 1 or shape[1] % BLOCK_MULTIPLE:
        refuse(
            f"the cache's blocks must hold a multiple of {BLOCK_MULTIPLE} tokens; they hold "
            f"{shape[1]}. Pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
        )
    per_token = dtype is torch.int8
    for scale in (params.k_scale, params.v_scale):
        if isinstance(scale, Tensor) is not per_token:
            wanted = "tensors [N, P, Hk] float32" if per_token else "numbers"
            refuse(f"a {dtype} cache takes k_scale and v_scale as {wanted}")
        if isinstance(scale, Tensor) and (
            scale.shape != shape[:3] or scale.dtype is not torch.float32 or not scale.is_cpu
        ):
            refuse(
                f"k_scale and v_scale must be {list(shape[:3])} float32 on the cpu; "
                f"one is {list(scale.shape)} {scale.dtype} on {scale.device}"
            )


def check_pages(metadata: CheckedMetadata, blocks: int, page: int) -> None:
    """InputError: the block table is too narrow for its contexts, or names no block of the cache.

    Entries beyond a sequence's context are not read and may hold anything.
    """
    table = metadata.block_table
    if metadata.longest > table.shape[1] * page:
        refuse(
            f"block_table has {table.shape[1]} pages of {page} a sequence; a context of "
            f"{metadata.longest} tokens needs {-(-metadata.longest // page)}"
        )
    if metadata.first_block >= 0 and metadata.last_block < blocks:
        return
    queries = metadata.query_start_loc.diff()
    read = torch.where(queries > 0, metadata.seq_lens, 0)[:, None]
    read = torch.arange(table.shape[1])[None, :] * page < read
    wrong = table[read & ((table < 0) | (table >= blocks))]
    if wrong.numel():
        refuse(f"block_table names block {int(wrong[0])}; the cache has blocks 0 to {blocks - 1}")


def check_query(
    query: Tensor, cache: Tensor, metadata: CheckedMetadata, out: Tensor | None
) -> None:
    """InputError: query and output do not fit the cache or the batch."""
    shape, cached = query.shape, cache.shape
    if len(shape) != 3 or query.dtype not in FLOATS or not query.is_cpu:
        refuse(
            "query must be [T, H, D] of float32, float16 or bfloat16 on the cpu; "
            f"it is {list(shape)} {query.dtype} on {query.device}"
        )
    tokens, heads, width = shape
    if len(cached) != 4:
        refuse(f"the cache must be (N, P, Hk, D + Dv); it is {list(cached)}")
    if not cached[2] or heads % cached[2]:
        refuse(
            f"{heads} query heads do not divide by the cache's {cached[2]} KV "
            "heads; pass the cache as cache_shape gives it: (N, P, Hk, D + Dv)"
        )
    if width >= cached[3]:
        refuse(
            f"query heads of {width} do not fit a cache of width {cached[3]}, which holds K and V: "
            "D + Dv"
        )
    if metadata.rows > tokens:
        refuse(
            f"query has {tokens} rows; query_start_loc ends at {metadata.rows} and needs as many"
        )
    if out is not None:
        wanted = (tokens, heads, cached[3] - width)
        if out.shape != wanted or out.dtype is not query.dtype or not out.is_cpu:
            refuse(
                f"out must be {list(wanted)} {query.dtype} on the cpu; "
                f"it is {list(out.shape)} {out.dtype} on {out.device}"
            )
        if out.stride(2) != 1:
            refuse(f"out's last dimension must be dense; its stride is {out.stride(2)}")


def check_params(params: Paged, heads: int, sequences: int) -> None:
    """InputError: a tensor of the params has another size than the batch."""
    for name in ("sinks", "alibi_slopes"):
        tensor = getattr(params, name)
        if tensor is not None and tensor.shape != (heads,):
            refuse(f"{name} must be [{heads}], one a query head; it is {list(tensor.shape)}")
    ranges = params.prefix_ranges
    if ranges is not None and (
        ranges.dim() != 3 or ranges.shape[0] != sequences or ranges.shape[2] != 2
    ):
        refuse(f"prefix_ranges must be [{sequences}, M, 2]; it is {list(ranges.shape)}")
