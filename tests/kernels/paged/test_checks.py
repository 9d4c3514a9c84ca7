"""What a call of the library may hold: strides that are read as they lie, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.paged import Paged, paged_attention
from attnctl.runtime import Metadata, open_backend

NAMES = ("TRITON_ATTN", "CPU_ATTN", "FLEX_ATTENTION")
WITH_SINKS = ("TRITON_ATTN", "CPU_ATTN")
HEADS, KV_HEADS, WIDTH, PAGE, BLOCKS = 4, 2, 16, 32, 4


def ints(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def rows(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch(name: str, **changes: Any) -> Metadata:
    """2 and 1 query tokens over contexts of 5 and 40, the newest of each written to its slot."""
    arguments: dict[str, Any] = {
        "query_start_loc": ints(0, 2, 3),
        "seq_lens": ints(5, 40),
        "block_table": ints([0, 0], [1, 2]),
        "slot_mapping": torch.tensor([3, 4, 71]),
        "max_query_len": 2,
        "max_seq_len": 40,
    }
    made: Metadata = open_backend(name).build_metadata(**(arguments | changes))
    return made


def a_cache(dtype: torch.dtype = torch.float32) -> Tensor:
    return rows(BLOCKS, PAGE, KV_HEADS, 2 * WIDTH, seed=7).to(dtype)


def exact(query: Tensor, cache: Tensor, params: Paged) -> Tensor:
    places = ints([0, 0], [1, 2]), ints(0, 2, 3), ints(5, 40)
    return paged_attention(query, cache[..., :WIDTH], cache[..., WIDTH:], *places, params)


def forward(name: str, params: Paged, metadata: Metadata, **more: Any) -> tuple[Tensor, Tensor]:
    """The result and the specification's."""
    query = more.pop("query", rows(3, HEADS, WIDTH, seed=1))
    cache = more.pop("cache", a_cache())
    found = open_backend(name).forward(query, cache, metadata, params, **more)
    return found.double(), exact(query, cache, params)


def spread(tensor: Tensor) -> Tensor:
    """The same numbers, every other element of a longer tensor whose rest is none of them."""
    wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), 99, dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide[..., ::2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("field", ["query_start_loc", "seq_lens", "block_table", "slot_mapping"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_a_batch_may_lie_at_any_strides(name: str, field: str, dtype: torch.dtype) -> None:
    """Each of its tensors between foreign numbers, in either width, is read by its strides."""
    plain = batch("CPU_ATTN")
    metadata = batch(name, **{field: spread(getattr(plain, field).to(dtype))})
    params = Paged(scale=0.3)
    key, cache = rows(3, KV_HEADS, WIDTH, seed=2), a_cache()
    open_backend(name).write_cache(key, -key, cache, metadata, params)
    for row, (page, offset) in enumerate(((0, 3), (0, 4), (2, 7))):
        assert torch.equal(cache[page, offset], torch.cat([key[row], -key[row]], dim=1))
    out, wanted = forward(name, params, metadata, cache=cache)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", WITH_SINKS)
@pytest.mark.parametrize("feature", ["sinks", "alibi_slopes"])
@pytest.mark.parametrize("queries", [(0, 2, 3), (0, 1, 2)], ids=["prefill", "decode"])
def test_one_number_a_head_may_lie_at_any_stride(
    name: str, feature: str, queries: tuple[int, ...]
) -> None:
    """A rank's share of all heads' sinks is every other one of them."""
    given = spread(rows(HEADS, seed=3))
    assert given.stride() == (2,)
    of_heads: dict[str, Any] = {feature: given}
    params = Paged(scale=0.3, **of_heads)
    starts, longest = ints(*queries), max(b - a for a, b in pairwise(queries))
    metadata = batch(name, query_start_loc=starts, max_query_len=longest)
    query, cache = rows(queries[-1], HEADS, WIDTH, seed=1), a_cache()
    out = open_backend(name).forward(query, cache, metadata, params)
    places = ints([0, 0], [1, 2]), starts, ints(5, 40)
    wanted = paged_attention(query, cache[..., :WIDTH], cache[..., WIDTH:], *places, params)
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_under_a_scale_is_read_as_it_was(name: str) -> None:
    """A cache of floats keeps K and V over their scales, since whoever reads multiplies."""
    key, value = rows(3, KV_HEADS, WIDTH, seed=4), rows(3, KV_HEADS, WIDTH, seed=5)
    params, cache = Paged(scale=0.3, k_scale=0.5, v_scale=0.25), a_cache()
    open_backend(name).write_cache(key, value, cache, batch(name), params)
    assert torch.equal(cache[2, 7, :, :WIDTH], key[2] / 0.5)
    assert torch.equal(cache[2, 7, :, WIDTH:], value[2] / 0.25)
    out, wanted = forward(name, params, batch(name), cache=cache)
    torch.testing.assert_close(out, wanted, atol=1e-5, rtol=0)
    unscaled = exact(rows(3, HEADS, WIDTH, seed=1), cache, Paged(scale=0.3))
    assert (out - unscaled).norm() > 0.1 * out.norm()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seq_lens": [5, 40]}, "seq_lens must be a tensor of integers; it is <class 'list'>"),
        ({"seq_lens": ints(1, 40)}, r"sequence 0 has 2 query tokens and seq_lens\[0\] is 1"),
        ({"query_start_loc": ints(0, 3)}, "2 entries for 2 seq_lens; it needs 3"),
        ({"query_start_loc": ints(0, 3, 2)}, "entry 2 is 2 after 3"),
        ({"block_table": ints(0, 1)}, "block_table must have 2 dimensions"),
        ({"block_table": ints([0, 0])}, "1 rows for 2 seq_lens"),
        ({"slot_mapping": torch.zeros(3)}, "slot_mapping must be a tensor of integers"),
        ({"max_query_len": 1}, "max_query_len must be 2 or more"),
        ({"max_seq_len": 39}, "max_seq_len must be 40 or more"),
        ({"max_query_len": None}, "max_query_len must be an integer from 0 on, .*None"),
        ({"max_query_len": -1}, "max_query_len must be an integer from 0 on, .*-1"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(
    name: str, changes: dict[str, Any], sentence: str
) -> None:
    """Each in a sentence that names the backend and says what was found."""
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        batch(name, **changes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (ints([0], [1]), "1 pages of 32 a sequence; a context of 40 tokens needs 2"),
        (ints([0, 0], [1, 9]), "names block 9; the cache has blocks 0 to 3"),
        (ints([0, 0], [1, -1]), "names block -1"),
        (torch.tensor([[0, 0], [1, 2**33 + 2]]), "names block 2147483647"),
    ],
)
def test_a_block_that_is_none_of_the_cache_is_refused(
    name: str, table: Tensor, sentence: str
) -> None:
    """One beyond 32 bits too, which is not taken for what is left of it."""
    with pytest.raises(InputError, match=sentence):
        forward(name, Paged(scale=0.3), batch(name, block_table=table))


QUERY = rows(3, HEADS, WIDTH)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"query": QUERY[:2]}, "query has 2 rows; query_start_loc ends at 3"),
        ({"query": QUERY.flatten(1)}, r"query must be \[T, H, D\]"),
        ({"query": QUERY.double()}, "query must be .*float64"),
        ({"query": QUERY[:, :3]}, "3 "),
        ({"cache": a_cache()[0]}, r"\(N, P, Hk, D \+ Dv\)"),
        ({"cache": a_cache().to(torch.uint8)}, "torch.uint8"),
        ({"cache": a_cache(torch.int8)}, "takes k_scale and v_scale as tensors"),
        ({"out": torch.empty(3, HEADS, 8)}, r"out must be \[3, 4, 16\]"),
        ({"out": torch.empty(3, HEADS, WIDTH).half()}, "out must be .*float16"),
        ({"out": torch.empty(1, HEADS, WIDTH).expand(3, -1, -1)}, "must not lie on one another"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    name: str, more: dict[str, Any], sentence: str
) -> None:
    """Before a kernel reads or writes beyond them."""
    with pytest.raises(InputError, match=sentence):
        forward(name, Paged(scale=0.3), batch(name), **more)


@pytest.mark.parametrize("name", WITH_SINKS)
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"sinks": torch.ones(2)}, r"sinks must be \[4\], one a query head; it is \[2\]"),
        ({"alibi_slopes": torch.ones(8)}, r"alibi_slopes must be \[4\]"),
        ({"sinks": torch.ones(4, device="meta")}, "sinks is on meta"),
        ({"prefix_ranges": ints([[0, 2]])}, r"prefix_ranges must be \[2, M, 2\]"),
    ],
)
def test_params_of_another_size_are_refused(
    name: str, given: dict[str, Any], sentence: str
) -> None:
    """A sink or slope for each query head, ranges for each sequence, on the query's device."""
    with pytest.raises(InputError, match=sentence):
        forward(name, Paged(scale=0.3, **given), batch(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("slots", "heads", "width_v", "sentence"),
    [
        ((3, 4, 128), KV_HEADS, WIDTH, "slot 128 of slot_mapping lies outside the cache"),
        ((3, 4, 5, 6), KV_HEADS, WIDTH, "4 entries for 3 rows of key"),
        ((3, 4, 71), 3, WIDTH, r"key must be \[T, 2, D\]"),
        ((3, 4, 71), KV_HEADS, 24, r"D \+ Dv = 32"),
    ],
)
def test_a_write_beyond_the_cache_is_refused(
    name: str, slots: tuple[int, ...], heads: int, width_v: int, sentence: str
) -> None:
    """Nothing is written then."""
    cache = a_cache()
    before = cache.clone()
    metadata = batch(name, slot_mapping=torch.tensor(slots))
    key, value = rows(3, heads, WIDTH), rows(3, heads, width_v)
    with pytest.raises(InputError, match=sentence):
        open_backend(name).write_cache(key, value, cache, metadata, Paged(scale=0.3))
    assert torch.equal(cache, before)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_that_want_a_gradient_are_computed_without_one(name: str) -> None:
    """As a layer's projections give them outside of torch.no_grad()."""
    metadata, params, cache = batch(name), Paged(scale=0.3), a_cache()
    key = rows(3, KV_HEADS, WIDTH, seed=2).requires_grad_()
    open_backend(name).write_cache(key, key, cache, metadata, params)
    assert not cache.requires_grad
    query = rows(3, HEADS, WIDTH, seed=1).requires_grad_()
    out = open_backend(name).forward(query, cache, metadata, params)
    wanted = exact(query.detach(), cache, params)
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=0)
    assert not out.requires_grad
