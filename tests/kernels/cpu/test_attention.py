"""The processor's kernels against the specification, feature by feature."""

from __future__ import annotations

import mmap

import msgspec
import pytest
import torch

from attnctl.kernels.cpu.fallback import TorchKernels
from attnctl.kernels.cpu.paged import Kernels, open_kernels
from attnctl.ops import paged_cases
from attnctl.ops.paged import Paged
from attnctl.probe.realhost import RealHost
from tests.kernels.cpu.batches import (
    Filled,
    attend,
    fill,
    judge,
    outputs_of_nothing_seen,
    outputs_of_seen_nan,
    poison_unseen,
    reference,
)

DTYPES = ("float32", "float16", "bfloat16")

# prefill, chunked prefill, decode and multi-token decode in one batch, and a sequence of nothing
MIXED = {
    "queries": "40+23+1+4+0+1",
    "contexts": "40+140+64+65+0+1",
    "heads": 4,
    "kv_heads": 1,
    "head_size": 32,
}

FEATURES = {
    "causal": {},
    "not causal": {"causal": False},
    "window": {"window": 7},
    "window of one": {"window": 1},
    "window wider than the context": {"window": 4000},
    "two-sided window": {"causal": False, "window": 9, "window_right": 4},
    "chunks": {"chunk": 16},
    "chunks and a window": {"chunk": 50, "window": 20},
    "softcap": {"softcap": 3.0},
    "sinks": {"sinks": True},
    "alibi": {"alibi": True},
    "ranges": {"ranges": True},
    "ranges past a window": {"ranges": True, "window": 3},
    "all of it": {"window": 30, "softcap": 8.0, "sinks": True, "alibi": True, "ranges": True},
    "tokens outside heads": {"layout": "NHD"},
    "pages of 128": {"page": 128},
    "pages of 7": {"page": 7},
    "one projection": {"fused_qkv": True, "padding": 3, "kv_heads": 2},
}


@pytest.fixture(scope="module")
def compiled() -> Kernels:
    kernels, finding = open_kernels(RealHost())
    assert kernels.name == "c++", finding
    return kernels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_is_as_exact_as_its_precision(
    compiled: Kernels, feature: str, dtype: str
) -> None:
    """A mixed batch in each storage type stays within the budget of the operation."""
    result = judge(compiled, dtype=dtype, **{**MIXED, **FEATURES[feature]})
    assert result.verdict == "pass", result


@pytest.mark.parametrize("feature", FEATURES)
def test_the_fallback_gives_the_same(feature: str) -> None:
    """Plain torch in float32 passes what the compiled kernels pass."""
    result = judge(TorchKernels(), dtype="bfloat16", **{**MIXED, **FEATURES[feature]})
    assert result.verdict == "pass", result


@pytest.mark.parametrize("size", [32, 40, 64, 72, 80, 96, 112, 128, 192, 256, 512])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_head_size(compiled: Kernels, size: int, dtype: str) -> None:
    """Widths that are no multiple of a vector, and the widest."""
    result = judge(compiled, dtype=dtype, head_size=size, queries="1+20", contexts="67+40")
    assert result.verdict == "pass", result


@pytest.mark.parametrize("sizes", [(192, 128), (128, 192), (40, 72), (96, 8), (13, 5)])
def test_keys_and_values_of_unequal_width(compiled: Kernels, sizes: tuple[int, int]) -> None:
    """D and Dv apart, either one wider, also below a vector and odd."""
    for dtype in DTYPES:
        widths = {"head_size": sizes[0], "head_size_v": sizes[1]}
        result = judge(compiled, dtype=dtype, **{**MIXED, **widths})
        assert result.verdict == "pass", result


@pytest.mark.parametrize("heads", [(7, 1), (10, 2), (71, 1), (4, 4), (16, 1), (34, 2)])
def test_every_ratio_of_heads(compiled: Kernels, heads: tuple[int, int]) -> None:
    """Queries a KV head that fill no block of rows, and many more rows than tokens."""
    for queries in ("1+1", "4+3", "30+2"):
        result = judge(
            compiled,
            dtype="float32",
            heads=heads[0],
            kv_heads=heads[1],
            queries=queries,
            contexts="65+130",
        )
        assert result.verdict == "pass", result


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129])
@pytest.mark.parametrize("queries", ["1", "4", "all"])
def test_lengths_around_a_tile(compiled: Kernels, length: int, queries: str) -> None:
    """One context token fewer and more than a tile holds, in decode and in prefill."""
    count = length if queries == "all" else min(int(queries), length)
    result = judge(compiled, dtype="float32", queries=str(count), contexts=str(length))
    assert result.verdict == "pass", result


@pytest.mark.parametrize("kind", ["fp8", "fp8_e5m2", "int8_per_token_head", "float32"])
def test_caches_of_other_types(compiled: Kernels, kind: str) -> None:
    """What was stored is read exactly, with its scales; without the scale it is another answer."""
    for dtype in DTYPES:
        result = judge(compiled, dtype=dtype, kv_cache_dtype=kind, **MIXED)
        assert result.verdict == "pass", result


@pytest.mark.parametrize("which", ["k_scale", "v_scale"])
@pytest.mark.parametrize("kind", ["fp8", "int8_per_token_head"])
def test_a_scale_that_is_ignored_shows(compiled: Kernels, kind: str, which: str) -> None:
    """Either scale set to 1 changes the output by more than a tenth."""
    filled = fill(compiled, dtype="float32", kv_cache_dtype=kind, **MIXED)
    scale = getattr(filled.params, which)
    plain = torch.ones_like(scale) if isinstance(scale, torch.Tensor) else 1.0
    right = attend(compiled, filled)
    wrong = attend(compiled, filled, msgspec.structs.replace(filled.params, **{which: plain}))
    assert (wrong - right).norm() > 0.1 * right.norm()


@pytest.mark.parametrize("queries", ["1", "4", "40"])
@pytest.mark.parametrize("masks", [{"window": 8}, {"chunk": 32}, {"window": 8, "ranges": True}])
def test_values_outside_the_mask_are_never_multiplied(
    compiled: Kernels, masks: dict[str, int], queries: str
) -> None:
    """NaN in every key and value that no query sees changes not one bit."""
    filled = fill(compiled, dtype="float32", queries=queries, contexts="200", **masks)
    right = attend(compiled, filled)
    poison_unseen(filled, int(queries), 200)
    assert right.isfinite().all()
    assert torch.equal(attend(compiled, filled), right)


def test_what_is_seen_and_not_a_number_stays_so(compiled: Kernels) -> None:
    """A NaN in a visible value or key is not hidden."""
    for out in outputs_of_seen_nan(compiled, "float32"):
        assert out.isnan().all()


@pytest.mark.parametrize("sinks", [False, True])
def test_rows_that_see_nothing_are_zero(compiled: Kernels, sinks: bool) -> None:
    """A window of no tokens, in decode and prefill, with and without a sink."""
    out = outputs_of_nothing_seen(compiled, sinks=sinks)
    assert torch.equal(out, torch.zeros_like(out))


def test_queries_before_the_first_context_token_are_zero(compiled: Kernels) -> None:
    """More queries than context: the rows before it see nothing."""
    filled = fill(compiled, dtype="float32", queries="6", contexts="6")
    batch = msgspec.structs.replace(filled.batch, seq_lens=torch.tensor([2], dtype=torch.int32))
    out = attend(compiled, Filled(batch=batch, cache=filled.cache, params=filled.params))
    assert torch.equal(out[:4], torch.zeros_like(out[:4]))
    assert out[4:].isfinite().all()
    assert (out[4:] != 0).any()


def test_threads_share_one_long_sequence(compiled: Kernels) -> None:
    """A context cut into parts gives what one thread gives, to rounding."""
    filled = fill(compiled, dtype="float32", heads=4, kv_heads=1, queries="1", contexts="3000")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = attend(compiled, filled)
        torch.set_num_threads(4)
        parts = attend(compiled, filled)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(parts, alone, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parts.double(), reference(filled), rtol=1e-4, atol=1e-6)


def test_many_rows_of_one_head_are_cut_too(compiled: Kernels) -> None:
    """71 query heads on one KV head over a long context, in parts, within the budget."""
    result = judge(
        compiled, dtype="float32", heads=71, kv_heads=1, sinks=True, queries="1", contexts="1500"
    )
    assert result.verdict == "pass", result


def test_block_ids_beyond_two_to_the_31_elements(compiled: Kernels) -> None:
    """A page in the last of a pool of 6 GiB, of which only the pages in use have memory."""
    page, width = 32, 64
    blocks = (6 << 30) // (page * 2 * width * 2)
    pool = mmap.mmap(-1, blocks * page * 2 * width * 2)
    try:
        cache = torch.frombuffer(pool, dtype=torch.float16).view(blocks, page, 1, 2 * width)
        small = fill(compiled, heads=4, kv_heads=1, queries="1", contexts="90")
        far = torch.tensor([blocks - 1, 5, blocks - 7], dtype=torch.int32)
        where = far[torch.arange(90) // page].long() * page + torch.arange(90) % page
        batch = msgspec.structs.replace(
            small.batch, block_table=far[None], slots=where, num_blocks=blocks
        )
        big = Filled(batch=batch, cache=cache, params=small.params)
        compiled.write(batch.key, batch.value, big.keys, big.values, batch.slots, 1.0, 1.0)
        assert torch.equal(attend(compiled, big), attend(compiled, small))
        del cache, big
    finally:
        pool.close()


def test_queries_whose_last_dimension_is_not_dense(compiled: Kernels) -> None:
    """A transposed query is copied and gives the same."""
    filled = fill(compiled, dtype="float32", queries="3", contexts="40")
    loose = filled.batch.query.transpose(1, 2).contiguous().transpose(1, 2)
    assert loose.stride(-1) != 1
    batch = msgspec.structs.replace(filled.batch, query=loose)
    other = Filled(batch=batch, cache=filled.cache, params=filled.params)
    assert torch.equal(attend(compiled, other), attend(compiled, filled))


def test_large_logits_stay_exact(compiled: Kernels) -> None:
    """Logits in the hundreds neither overflow nor lose the runner-up."""
    case = paged_cases.case(page=32, dtype="float32", queries="2", contexts="70")
    filled = fill(compiled, **{k: case[k] for k in ("dtype", "queries", "contexts")})
    params = msgspec.structs.replace(filled.params, scale=40.0)
    again = Filled(batch=filled.batch, cache=filled.cache, params=params)
    torch.testing.assert_close(
        attend(compiled, again).double(), reference(again), rtol=1e-3, atol=1e-3
    )


def test_an_empty_batch_is_nothing(compiled: Kernels) -> None:
    """No sequences: nothing is written and nothing fails."""
    none = torch.zeros(0, dtype=torch.int32)
    cache = torch.zeros(1, 32, 1, 64)
    out = torch.full((2, 4, 32), torch.nan)
    compiled.attend(
        torch.zeros(2, 4, 32),
        cache[..., :32],
        cache[..., 32:],
        torch.zeros(0, 1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
        none,
        Paged(scale=1.0),
        out,
    )
    assert out.isnan().all()
