"""The processor's latent kernels where cases do not reach: threads, bytes, ties, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from attnctl.backends.cpu_mla.kernel import CpuMla
from attnctl.backends.cpu_mla_sparse.kernel import CpuMlaSparse
from attnctl.exits import InputError
from attnctl.kernels.cpu.indexer_call import NativeIndexer
from attnctl.kernels.cpu.latent import open_indexer, open_latent
from attnctl.latent_runtime import packed_batch
from attnctl.ops.indexer import Indexing, index_cache_shape, pick_topk
from attnctl.ops.merge_states import merge_attn_states
from attnctl.ops.mla import Latent, latent_attention
from attnctl.ops.mla_sparse import sparse_latent_attention, to_slots
from attnctl.probe.realhost import RealHost
from attnctl.runtime import Metadata, open_backend

PARAMS = Latent(scale=0.1, kv_lora_rank=512)


class HostWithoutCompiler:
    """This machine with nothing on its PATH."""

    def ask(self, op: str, *args: Any) -> Any:
        return None if op == "env" and args[0] == "CC" else self._other(op, *args)

    def _other(self, op: str, *args: Any) -> Any:
        return "/nowhere" if op == "env" and args[0] == "PATH" else RealHost().ask(op, *args)


@pytest.fixture
def threads():
    """Sets the number of threads; the test's end puts it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch(queries: list[int], lengths: list[int], page: int = 64) -> Metadata:
    """Sequences whose pages lie in reverse."""
    pages = -(-max(lengths) // page)
    order = torch.arange(len(lengths) * pages).flip(0).view(len(lengths), pages)
    return packed_batch(
        torch.tensor([0, *queries]).cumsum(0),
        torch.tensor(lengths),
        order,
        torch.zeros(0),
        max_query_len=max(queries),
        max_seq_len=max(lengths),
    )


def places(metadata: Metadata) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return metadata.block_table, metadata.query_start_loc, metadata.seq_lens


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_parts_of_a_context_are_merged_into_what_one_thread_gives(threads, heads, count) -> None:
    """A long sequence beside short ones is cut for the threads there are."""
    metadata = batch([1, 3, 0, 1], [1900, 40, 7, 385])
    cache = drawn(int(metadata.block_table.max()) + 1, 64, 576).bfloat16()
    query, lse = drawn(5, heads, 576, seed=1).bfloat16(), torch.empty(5, heads)
    threads(count)
    out = open_backend("CPU_MLA").forward(query, cache, metadata, PARAMS, lse=lse)
    exact = latent_attention(query, cache, *places(metadata), PARAMS)
    torch.testing.assert_close(out.double(), exact[0], rtol=0, atol=2e-2)
    torch.testing.assert_close(lse.double(), exact[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dtype", "known"), [("float8_e4m3fn", 254), ("float8_e5m2", 248)])
def test_every_finite_byte_of_either_format_is_read_exactly(dtype: str, known: int) -> None:
    """A sequence of one row gives that row: all bytes, subnormals and both zeros included."""
    stored = torch.arange(256, dtype=torch.uint8).view(getattr(torch, dtype))
    bytes_of = torch.arange(256, dtype=torch.uint8)[stored.float().isfinite()]
    assert bytes_of.numel() == known
    cache = torch.zeros(known, 16, 16, dtype=torch.uint8)
    cache[:, 0] = bytes_of[:, None]
    cache = cache.view(stored.dtype)
    metadata = packed_batch(
        torch.arange(known + 1),
        torch.ones(known),
        torch.arange(known)[:, None],
        torch.zeros(0),
        max_query_len=1,
        max_seq_len=1,
    )
    params = Latent(scale=1.0, kv_lora_rank=16)
    out = open_backend("CPU_MLA").forward(torch.zeros(known, 1, 16), cache, metadata, params)
    assert torch.equal(out[:, 0], cache[:, 0].float())


@pytest.mark.parametrize("heads", [16, 128])
@pytest.mark.parametrize("context", [2047, 2048, 2049])
def test_picked_tokens_give_dense_attention_as_long_as_all_are_picked(context, heads) -> None:
    """Indexer, slots, sparse attention: equal to dense up to 2048, one token less beyond."""
    metadata, backend = batch([1], [context]), open_backend("CPU_MLA_SPARSE")
    blocks = metadata.block_table.shape[1]
    cache, query = drawn(blocks, 64, 576).bfloat16(), drawn(1, heads, 576, seed=1).bfloat16()
    index_cache = torch.zeros(index_cache_shape(blocks, 64, 128), dtype=torch.uint8)
    indexing = Indexing(topk=2048, scale=0.1)
    table, *lengths = places(metadata)
    every = backend.build_metadata(
        *lengths, table, torch.arange(blocks * 64), max_query_len=1, max_seq_len=context
    )
    backend.write_index(drawn(blocks * 64, 128, seed=2), index_cache, every, indexing)
    index_query, weights = drawn(1, 64, 128, seed=3), drawn(1, 64, seed=4)
    picks = backend.select_tokens(index_query, weights, index_cache, metadata, indexing)
    slots = to_slots(picks, *places(metadata), 64)
    lse = torch.empty(1, heads)
    out = backend.forward(query, cache, metadata, slots, PARAMS, lse=lse)
    dense_lse = torch.empty(1, heads)
    dense = open_backend("CPU_MLA").forward(query, cache, metadata, PARAMS, lse=dense_lse)
    assert int((picks >= 0).sum()) == min(context, 2048)
    if context <= 2048:
        torch.testing.assert_close(out, dense, rtol=0, atol=1e-3)
        torch.testing.assert_close(lse, dense_lse, rtol=0, atol=1e-5)
    else:
        logits = backend.index_logits(index_query, weights, index_cache, metadata, indexing)
        left = int(logits[0].argmin())
        assert left not in picks[0].tolist()
        # for most heads the one that is left out weighs too little to show
        assert bool((lse <= dense_lse).all())
        assert bool((lse < dense_lse).any())
        exact, _ = sparse_latent_attention(query, cache, slots, PARAMS)
        torch.testing.assert_close(out.double(), exact, rtol=8e-3, atol=2e-3)


@pytest.fixture(scope="module")
def indexer() -> NativeIndexer:
    kernels, finding = open_indexer(RealHost())
    assert isinstance(kernels, NativeIndexer), finding
    return kernels


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 5000])
@pytest.mark.parametrize("topk", [1, 64, 2048])
def test_the_pick_is_the_specification_on_ties_zeros_and_any_sign(indexer, columns, topk) -> None:
    """Few distinct values, so that the last place is always contested; -0 and 0 are equal."""
    generator = torch.Generator().manual_seed(columns + topk)
    values = torch.tensor([-3.5, -1.0, -0.0, 0.0, 1e-30, 2.0, 1e30, -torch.inf])
    logits = values[torch.randint(0, 8, (3, columns), generator=generator)]
    assert torch.equal(indexer.pick(logits, topk), pick_topk(logits, topk))


def test_the_pick_of_random_logits_is_what_sorting_gives(indexer) -> None:
    """Distinct logits of every magnitude, and of nearly the same."""
    wide = drawn(4, 3000) * 10 ** (2 * drawn(4, 3000, seed=2))
    for logits in (wide, 1 + drawn(4, 3000, seed=1) * 1e-6):
        assert torch.equal(indexer.pick(logits, 700), pick_topk(logits, 700))


def test_a_key_of_nan_is_listed_by_nobody(indexer) -> None:
    """It takes a place, as it does where torch sorts, but it is not among the picks."""
    logits = torch.tensor([[1.0, torch.nan, 3.0, 2.0]])
    assert indexer.pick(logits, 3).tolist() == pick_topk(logits, 3).tolist() == [[2, 3, -1]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_start_loc": [0, 2, 4]}, "sequence 1 the rows 2 to 4; the query has 3 rows"),
        ({"query_start_loc": [2, 1, 3]}, "sequence 0 the rows 2 to 1"),
        ({"seq_lens": [40, 1]}, "seq_lens[1] is 1; it must count the sequence's 2 query tokens"),
        ({"seq_lens": [40, 200]}, "seq_lens[1] is 200; .* 2 pages of 64"),
        ({"block_table": [[0, 9], [2, 4]]}, "names block 4 for sequence 1; the cache has 4 blocks"),
        ({"block_table": [[-1, 9], [2, 3]]}, "names block -1 for sequence 0"),
    ],
)
def test_what_would_be_read_outside_the_cache_is_refused(changes, said: str) -> None:
    """By the kernels themselves, whoever calls; entries behind a context may hold anything."""
    sound = {
        "query_start_loc": [0, 1, 3],
        "seq_lens": [40, 70],
        "block_table": [[0, 99], [2, 3]],
        "slot_mapping": [],
    }
    metadata = packed_batch(
        *(torch.tensor(x, dtype=torch.int32) for x in {**sound, **changes}.values()),
        max_query_len=2,
        max_seq_len=70,
    )
    query, cache = drawn(3, 2, 576), drawn(4, 64, 576)
    pattern = said.replace("[", r"\[").replace("]", r"\]")
    kernels, _ = open_latent(RealHost())
    with pytest.raises(InputError, match=pattern):
        kernels.absorbed(query, cache, metadata, PARAMS, query[..., :512].clone(), drawn(3, 2))
    with pytest.raises(InputError, match="CPU_MLA: "):
        open_backend("CPU_MLA").forward(query, cache, metadata, PARAMS)
    index_cache = torch.zeros(index_cache_shape(4, 64, 128), dtype=torch.uint8)
    indexing, weights = Indexing(topk=4, scale=1.0), drawn(3, 2)
    given = (drawn(3, 2, 128), weights, index_cache, metadata, indexing)
    indexer, _ = open_indexer(RealHost())
    with pytest.raises(InputError, match=pattern):
        indexer.select(*given, torch.zeros(3, 4, dtype=torch.int32))
    with pytest.raises(InputError, match="CPU_MLA_SPARSE: "):
        open_backend("CPU_MLA_SPARSE").select_tokens(*given)


# 2^31 elements lie just below page 7767 of this stride, which is no power of two
STRIDE, FAR = 276480, (7766, 7767, 7768)


def test_rows_beyond_2_31_elements_are_read_in_both_forms(tmp_path: Path) -> None:
    """The same output as with the same rows at the start of a small cache."""
    size = FAR[-1] * STRIDE + 16 * 40
    whole = torch.from_file(str(tmp_path / "cache"), shared=True, size=size, dtype=torch.float16)
    far = whole.as_strided((FAR[-1] + 1, 16, 40), (STRIDE, 40, 1))
    rows, query = drawn(48, 40, seed=3).half(), drawn(1, 3, 40, seed=4).half()
    far[list(FAR)] = rows.view(3, 16, 40)
    params, outs, position = Latent(scale=0.2, kv_lora_rank=32), [], torch.arange(48)
    for held, first in ((far, torch.tensor(FAR)), (rows.view(3, 16, 40), torch.arange(3))):
        metadata = packed_batch(
            torch.tensor([0, 1]),
            torch.tensor([45]),
            first[None],
            torch.zeros(0),
            max_query_len=1,
            max_seq_len=45,
        )
        slots = (first[position // 16] * 16 + position % 16)[None, :45].int()
        outs.append(open_backend("CPU_MLA").forward(query, held, metadata, params))
        outs.append(open_backend("CPU_MLA_SPARSE").forward(query, held, metadata, slots, params))
    assert all(torch.equal(out, outs[0]) for out in outs[1:])
    assert outs[0].isfinite().all()


def test_states_merge_in_place_and_in_any_mixture_of_types() -> None:
    """Widths of no whole vector; a side that saw nothing holds NaN and may say +inf."""
    out_a, out_b = drawn(3, 5, 13), drawn(3, 5, 13, seed=1).bfloat16()
    lse_a, lse_b = drawn(3, 5, seed=2) * 20, drawn(3, 5, seed=3) * 20
    lse_a[0], out_a[0] = -torch.inf, torch.nan
    lse_b[1], out_b[1] = torch.inf, torch.nan
    lse_a[2, 0] = lse_b[2, 0] = -torch.inf
    exact, top = merge_attn_states(out_a, lse_a, out_b, lse_b)
    open_backend("CPU_MLA").merge_states(out_a, lse_a, out_b, lse_b, out=out_a, lse=lse_a)
    torch.testing.assert_close(out_a.double(), exact, rtol=0, atol=1e-6)
    torch.testing.assert_close(lse_a.double(), top, rtol=1e-6, atol=1e-6)


def test_without_a_compiler_torch_gives_the_same_and_says_so() -> None:
    """One warning a runtime, which names what was looked for."""
    metadata, query = batch([2, 1], [40, 70]), drawn(3, 4, 576)
    cache = drawn(4, 64, 576)
    native = open_backend("CPU_MLA").forward(query, cache, metadata, PARAMS)
    plain = CpuMla(HostWithoutCompiler())
    with pytest.warns(UserWarning, match="CPU_MLA computes in plain torch, slowly: there is no"):
        out = plain.forward(query, cache, metadata, PARAMS)
    torch.testing.assert_close(out, native, rtol=0, atol=1e-5)
    sparse = CpuMlaSparse(HostWithoutCompiler())
    with pytest.warns(UserWarning, match="CPU_MLA_SPARSE computes in plain torch"):
        assert not sparse.finding().met
    slots = torch.tensor([[3, -1, 200], [9, 9, 70], [-1, -1, -1]], dtype=torch.int32)
    theirs = open_backend("CPU_MLA_SPARSE").forward(query, cache, metadata, slots, PARAMS)
    ours = sparse.forward(query, cache, metadata, slots, PARAMS)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
