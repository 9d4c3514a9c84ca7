"""CPU_ATTN refuses input that its kernels would read beyond, or misread."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.paged import Paged
from attnctl.runtime import Metadata, PagedRuntime, open_backend

PARAMS = Paged(scale=0.125)


@pytest.fixture(scope="module")
def runtime() -> PagedRuntime:
    return open_backend("CPU_ATTN")


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def batch(runtime: PagedRuntime, **changes: object) -> Metadata:
    """Sequences of 2, 0 and 1 query tokens over 40, 0 and 7 tokens of context, one row padding."""
    arguments = {
        "query_start_loc": ints(0, 2, 2, 3),
        "seq_lens": ints(40, 0, 7),
        "block_table": torch.tensor([[1, 0], [0, 0], [2, 0]], dtype=torch.int32),
        "slot_mapping": torch.tensor([6, 7, -1]),
        "max_query_len": 2,
        "max_seq_len": 64,
    }
    return runtime.build_metadata(**(arguments | changes))


def rows(
    count: int = 4, heads: int = 2, width: int = 64, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.ones(count, heads, width, dtype=dtype)


def cache_of(*shape: int) -> Tensor:
    return torch.zeros(shape or (3, 32, 2, 128))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seq_lens": torch.ones(3)}, r"seq_lens must be a tensor of integers; .*float32"),
        ({"slot_mapping": torch.zeros(3)}, "slot_mapping must be a tensor of integers"),
        ({"block_table": ints(1, 0, 2)}, r"block_table must have 2 dimensions.*\[3\]"),
        ({"seq_lens": ints(40, 0, 7)[None]}, "seq_lens must have 1 dimension and"),
        ({"seq_lens": ints(40, 0, 7).to("meta")}, "lie on the cpu; .* meta"),
        ({"query_start_loc": ints(0, 2, 3)}, "3 entries for 3 seq_lens; it needs 4"),
        ({"query_start_loc": ints(-1, 2, 2, 3)}, "starts at -1"),
        ({"query_start_loc": ints(0, 2, 1, 3)}, "entry 2 is 1 after 2"),
        ({"block_table": ints(0, 0)[None]}, "1 rows for 3 seq_lens"),
        ({"seq_lens": ints(40, -1, 7)}, r"seq_lens\[1\] is -1"),
        ({"seq_lens": ints(1, 0, 7)}, r"sequence 0 has 2 query tokens and seq_lens\[0\] is 1"),
        ({"max_seq_len": 39}, "max_seq_len must be 40 or more"),
        ({"max_query_len": 1}, "max_query_len must be 2 or more"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(
    runtime: PagedRuntime, changes: dict[str, object], sentence: str
) -> None:
    """Each in a sentence that says what was found."""
    with pytest.raises(InputError, match=f"CPU_ATTN: .*{sentence}"):
        batch(runtime, **changes)


@pytest.mark.parametrize(
    ("key", "value", "cache", "changes", "sentence"),
    [
        (rows()[0], rows(), cache_of(), {}, r"key must be \[T, 2, D\]"),
        (rows(heads=4), rows(heads=4), cache_of(), {}, r"they are \[4, 4, 64\]"),
        (rows(), rows(width=32), cache_of(), {}, r"D \+ Dv = 128"),
        (rows(), rows(3), cache_of(), {}, r"\[4, 2, 64\] and \[3, 2, 64\]"),
        (rows(dtype=torch.float64), rows(dtype=torch.float64), cache_of(), {}, "float64"),
        (rows(), rows(dtype=torch.float16), cache_of(), {}, "both float32, float16 or bfloat16"),
        (rows(2), rows(2), cache_of(), {}, "3 entries for 2 rows"),
        (rows(), rows(), cache_of(), {"slot_mapping": ints(96)}, "slot 96 .* end at slot 95"),
        (rows(), rows(), cache_of(3, 16, 2, 128), {}, "multiple of 32 tokens; they hold 16"),
        (rows(), rows(), cache_of(3, 32, 256), {}, r"must be \(N, P, Hk, D \+ Dv\)"),
        (rows(), rows(), cache_of(3, 32, 128, 2).mT, {}, "last dimension dense"),
    ],
)
def test_a_write_that_does_not_fit_is_refused(
    runtime: PagedRuntime,
    key: Tensor,
    value: Tensor,
    cache: Tensor,
    changes: dict[str, object],
    sentence: str,
) -> None:
    """Nothing of the cache changes then."""
    with pytest.raises(InputError, match=f"CPU_ATTN: .*{sentence}"):
        runtime.write_cache(key, value, cache, batch(runtime, **changes), PARAMS)
    assert not cache.any()


@pytest.mark.parametrize(
    ("query", "cache", "out", "changes", "sentence"),
    [
        (rows()[0], cache_of(), None, {}, r"query must be \[T, H, D\]"),
        (rows(dtype=torch.float64), cache_of(), None, {}, "float64"),
        (rows(width=128), cache_of(), None, {}, "128 do not fit a cache of width 128"),
        (rows(2), cache_of(), None, {}, "query has 2 rows; query_start_loc ends at 3"),
        (rows(), cache_of(), rows(3), {}, r"out must be \[4, 2, 64\]"),
        (rows(), cache_of(), rows(dtype=torch.float16), {}, "out must be .*float32"),
        (rows(), cache_of(), rows().mT.contiguous().mT, {}, "its stride is 2"),
        (rows(), cache_of(2, 32, 2, 128), None, {}, "names block 2; .* blocks 0 to 1"),
        (rows(), cache_of(), None, {"block_table": ints(1, 0, 2)[:, None]}, "40 tokens needs 2"),
        (rows(), cache_of(3, 32, 256), None, {}, r"must be \(N, P, Hk, D \+ Dv\)"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(
    runtime: PagedRuntime,
    query: Tensor,
    cache: Tensor,
    out: Tensor | None,
    changes: dict[str, object],
    sentence: str,
) -> None:
    """Shapes, types, pages and rows."""
    with pytest.raises(InputError, match=f"CPU_ATTN: .*{sentence}"):
        runtime.forward(query, cache, batch(runtime, **changes), PARAMS, out)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (Paged(scale=1.0, sinks=torch.zeros(1)), r"sinks must be \[2\]"),
        (Paged(scale=1.0, alibi_slopes=torch.zeros(3)), r"alibi_slopes must be \[2\]"),
        (Paged(scale=1.0, prefix_ranges=ints(0, 1)[None, None]), r"must be \[3, M, 2\]"),
    ],
)
def test_params_of_another_size_are_refused(
    runtime: PagedRuntime, params: Paged, sentence: str
) -> None:
    """A tensor per head or sequence has as many entries as there are heads or sequences."""
    with pytest.raises(InputError, match=sentence):
        runtime.forward(rows(), cache_of(), batch(runtime), params)


def test_a_metadata_made_by_hand_is_checked_too(runtime: PagedRuntime) -> None:
    """The kernels never see a batch that nobody has read."""
    made = batch(runtime)
    plain = Metadata(
        query_start_loc=made.query_start_loc,
        seq_lens=ints(1, 0, 7),
        block_table=made.block_table,
        slot_mapping=made.slot_mapping,
        max_query_len=2,
        max_seq_len=64,
    )
    with pytest.raises(InputError, match="sequence 0 has 2 query tokens"):
        runtime.forward(rows(), cache_of(), plain, PARAMS)


def test_what_is_not_read_may_hold_anything(runtime: PagedRuntime) -> None:
    """Pages past a context, rows past the slots, rows past the last sequence, slots of -1."""
    table = torch.tensor([[1, 0], [-7, 99], [2, 1 << 30]], dtype=torch.int32)
    metadata = batch(runtime, block_table=table)
    cache, key = cache_of(), rows(9)
    runtime.write_cache(key, 2 * key, cache, metadata, PARAMS)
    assert cache.view(96, 256).any(1).nonzero().flatten().tolist() == [6, 7]
    mine = torch.full((4, 2, 64), torch.nan)
    out = runtime.forward(rows(), cache, metadata, PARAMS, mine)
    assert out[:3].isfinite().all()
    assert out[3].isnan().all()


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((0, 32, 2, 64), "num_blocks must be a positive integer; it is 0"),
        ((3, 32, 2.0, 64), "num_kv_heads must be a positive integer; it is 2.0"),
        ((3, 48, 2, 64), "block_size must be a multiple of 32; it is 48. Try 64"),
        ((3, 32, 2, 8), "head_size must be a multiple of 8 and at least 16; it is 8"),
        ((3, 32, 2, 64, 36), "head_size_v must be a multiple of 8 and at least 16; it is 36"),
    ],
)
def test_sizes_that_the_kernels_do_not_take_are_refused(
    runtime: PagedRuntime, sizes: tuple[int, ...], sentence: str
) -> None:
    """Before anybody allocates."""
    with pytest.raises(InputError, match=sentence):
        runtime.cache_shape(*sizes)
