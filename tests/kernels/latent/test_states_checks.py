"""Merging of states, index keys and picks refuse what their kernels would misread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.ops.indexer import Indexing
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent
from attnctl.runtime import open_backend

MERGERS = ("CPU_MLA", "TRITON_MLA")
INDEXERS = ("CPU_MLA_SPARSE", "TRITON_MLA_SPARSE")
T, H, WIDTH = 3, 2, 16


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sides() -> dict[str, Any]:
    return {
        "out_a": drawn(T, H, WIDTH, seed=1),
        "lse_a": drawn(T, H, seed=2),
        "out_b": drawn(T, H, WIDTH, seed=3),
        "lse_b": drawn(T, H, seed=4),
    }


@pytest.mark.parametrize("name", MERGERS)
@pytest.mark.parametrize("field", ["out_a", "out_b", "lse_a", "lse_b"])
def test_a_side_may_lie_at_any_strides(name: str, field: str) -> None:
    """Its last two dimensions turned round in memory, and the result is dense all the same."""
    given = sides()
    turned = given[field].transpose(-1, -2).contiguous().transpose(-1, -2)
    out, lse = open_backend(name).merge_states(**(given | {field: turned}))
    wanted, top = merge_attn_states(**given)
    torch.testing.assert_close(out.double(), wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(lse.double(), top, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", MERGERS)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"out_b": drawn(T, H, 8)}, r"out_b must be \[3, 2, 16\]"),
        ({"out_a": drawn(T, H * WIDTH)}, r"out_a must be \[T, H, Dv\]"),
        ({"out_a": drawn(T, H, WIDTH).int()}, "out_a must be .*int32"),
        ({"lse_a": drawn(H, T)}, r"lse_a must be \[3, 2\]"),
        ({"lse_b": drawn(T, H, 1)}, r"lse_b must be \[3, 2\]"),
        ({"out": drawn(2, H, WIDTH)}, r"out must be \[3, 2, 16\]"),
        ({"out": drawn(T, H, 2 * WIDTH)[..., ::2]}, "last dimension must be dense"),
        ({"lse": drawn(1, H)}, r"lse must be \[3, 2\] of torch.float32"),
        ({"lse": drawn(T, H).double()}, "lse must be .*float64"),
        ({"lse": drawn(1, H).expand(T, H)}, "must not lie on one another"),
        ({"out_b": drawn(T, H, WIDTH).to("meta")}, "out_b is on meta"),
    ],
)
def test_sides_that_do_not_fit_are_refused(
    name: str, changes: dict[str, Any], sentence: str
) -> None:
    """Before a kernel reads or writes beyond one of them."""
    with pytest.raises(InputError, match=f"^{name}: .*{sentence}"):
        open_backend(name).merge_states(**(sides() | changes))


@pytest.mark.parametrize("name", MERGERS)
@pytest.mark.parametrize("stored", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_rows_written_under_a_scale_are_read_as_they_were(name: str, stored: torch.dtype) -> None:
    """Whoever reads multiplies with kv_scale, whatever the cache holds."""
    backend, params = open_backend(name), Latent(scale=0.1, kv_lora_rank=32, kv_scale=0.5)
    cache = torch.zeros(backend.cache_shape(2, 16, 32, 16)).to(stored)
    one = torch.ones(1, dtype=torch.int32)
    metadata = backend.build_metadata(
        torch.tensor([0, 1]), one, one[None], one + 15, max_query_len=1, max_seq_len=1
    )
    latent, rope = drawn(1, 32, seed=5), drawn(1, 16, seed=6)
    backend.write_cache(latent, rope, cache, metadata, params)
    row = cache[1, 0].float() * 0.5
    rtol = torch.finfo(stored).eps
    torch.testing.assert_close(row, torch.cat([latent, rope], 1)[0], rtol=rtol, atol=2**-9)
    out = backend.forward(drawn(1, 2, 48), cache, metadata, params)
    torch.testing.assert_close(out[0, 0], row[:32], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", INDEXERS)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"query": drawn(T, H, 64)}, r"index queries must be \[T, Hi, 128\]"),
        ({"weights": drawn(T, 3)}, r"weights must be \[3, 2\]"),
        ({"index_cache": torch.zeros(2, 16, 132)}, "index cache must be torch.uint8"),
        ({"index_cache": torch.zeros(2, 16, 131, dtype=torch.uint8)}, r"index queries must|index"),
        ({"out": torch.zeros(T, 4, dtype=torch.int64)}, r"out must be \[3, 4\] int32"),
        ({"out": torch.zeros(T, 5, dtype=torch.int32)}, r"out must be \[3, 4\] int32"),
    ],
)
def test_picks_of_what_does_not_fit_are_refused(
    name: str, changes: dict[str, Any], sentence: str
) -> None:
    """Index queries of the cache's width, a weight for each, and room for K picks."""
    backend = open_backend(name)
    metadata = backend.build_metadata(
        torch.tensor([0, T]),
        torch.tensor([T]),
        torch.tensor([[1]]),
        torch.arange(16, 16 + T),
        max_query_len=T,
        max_seq_len=T,
    )
    given = {
        "query": drawn(T, H, 128),
        "weights": drawn(T, H),
        "index_cache": torch.zeros(backend.index_cache_shape(2, 16, 128), dtype=torch.uint8),
        "metadata": metadata,
        "params": Indexing(topk=4, scale=1.0),
    }
    with pytest.raises(InputError, match=sentence):
        backend.select_tokens(**(given | changes))


@pytest.mark.parametrize("name", INDEXERS)
@pytest.mark.parametrize(
    ("key", "slots", "sentence"),
    [
        (drawn(T, 64), (0, 1, 2), r"index keys must be \[T, 128\]"),
        (drawn(T, 128), (0, 1, 32), "slot 32 of slot_mapping lies outside the index cache"),
        (drawn(T, 128), (0, 1, 2, 3), "4 entries for 3 rows"),
    ],
)
def test_index_keys_that_do_not_fit_are_refused(
    name: str, key: Tensor, slots: tuple[int, ...], sentence: str
) -> None:
    """Nothing is written then."""
    backend = open_backend(name)
    cache = torch.zeros(backend.index_cache_shape(2, 16, 128), dtype=torch.uint8)
    metadata = backend.build_metadata(
        torch.tensor([0, T]),
        torch.tensor([T]),
        torch.tensor([[1]]),
        torch.tensor(slots),
        max_query_len=T,
        max_seq_len=T,
    )
    with pytest.raises(InputError, match=sentence):
        backend.write_index(key, cache, metadata, Indexing(topk=4, scale=1.0))
    assert not cache.any()
