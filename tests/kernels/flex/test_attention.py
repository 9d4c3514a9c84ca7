"""FLEX_ATTENTION: the mask as intervals, blocks by arithmetic, one kernel for all lengths."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from attnctl.backends.flex_attention import kernel
from attnctl.backends.flex_attention.kernel import FlexAttention
from attnctl.exits import InputError
from attnctl.kernels.flex.attend import batch_of
from attnctl.kernels.flex.pages import in_place_possible, keys_and_values
from attnctl.kernels.flex.tiles import fitted, options
from attnctl.ops.case import Case
from attnctl.ops.compare import compare
from attnctl.ops.paged_cases import PHASES, case
from attnctl.ops.paged_inputs import build
from attnctl.ops.paged_trial import try_case
from tests.kernels.flex.batches import MASKS, cache_of, metadata_of, specified

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MASKS)
def test_every_mask_is_right_in_every_phase(name: str, phase: str) -> None:
    """Tried as smoke does, with NaN wherever nothing belongs."""
    trial = try_case(FlexAttention(False), case(**{**PHASES[phase], **MASKS[name]}))
    assert trial.verdict == "pass", trial.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"softcap": 5.0},
        {"alibi": True, "heads": 6, "kv_heads": 2},
        {"alibi": True, "softcap": 3.0, "window": 9, "dtype": "bfloat16"},
        {"head_size": 40, "head_size_v": 72, "heads": 7, "kv_heads": 1},
        {"layout": "HND", "page": 48},
        {"fused_qkv": True, "padding": 3},
        {"dtype": "float16", "kv_cache_dtype": "bfloat16"},
        {"queries": "0+3+0+1", "contexts": "0+3+0+20"},
        {"queries": "150+1", "contexts": "200+5", "window": 40},
    ],
)
def test_scores_widths_and_layouts_are_right(changes: dict[str, Any]) -> None:
    """Softcap and ALiBi change scores; widths, layouts and dtypes are the cache's affair."""
    one = case(**{**PHASES["chunked"], **changes})
    trial = try_case(FlexAttention(False), one)
    assert trial.verdict == "pass", trial.detail


def test_slopes_of_a_narrow_dtype_are_multiplied_in_float32() -> None:
    """bfloat16 times a distance would be rounded to bfloat16: a logit off by a tenth at 60."""
    changes = {"alibi": True, "contexts": "300+70", "dtype": "float32", "queries": "5+2"}
    batch = build(case(**changes))
    slopes = torch.linspace(0.1, 0.7, batch.query.shape[1]).bfloat16()
    params, same = (
        msgspec.structs.replace(batch.params, alibi_slopes=one) for one in (slopes, slopes.float())
    )
    cache, metadata = cache_of(batch, 0.0), metadata_of(batch)
    found, wanted = (
        FlexAttention(False).forward(batch.query, cache, metadata, one) for one in (params, same)
    )
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", MASKS)
def test_the_cache_in_place_gives_what_the_packed_copy_gives(name: str) -> None:
    """Logical positions come back from physical pages, scores included."""
    changes = {**PHASES["speculative"], **MASKS[name], "dtype": "float32", "alibi": True}
    batch = build(case(**changes))
    cache, metadata = cache_of(batch, 3.0), metadata_of(batch)
    given = (batch.query, cache, metadata, batch.params)
    found = FlexAttention(False, "cache").forward(*given)
    torch.testing.assert_close(found, FlexAttention(False, "packed").forward(*given))
    assert compare(found, specified(batch, cache), specified(batch, cache, found.dtype)).error


def test_pages_that_sequences_share_are_read_by_each() -> None:
    """A prefix that two sequences have in common stands in both their tables."""
    batch = build(case(queries="2+2", contexts="40+40", dtype="float32"))
    batch.block_table[1, :2] = batch.block_table[0, :2]
    cache = cache_of(batch, 0.0)
    given = (batch.query, cache, metadata_of(batch), batch.params)
    for place in ("cache", "packed"):
        found = FlexAttention(False, place).forward(*given)
        torch.testing.assert_close(found.double(), specified(batch, cache), rtol=1e-5, atol=1e-5)


def test_rows_that_see_nothing_do_not_read_what_lies_between_them() -> None:
    """A window of 0 leaves no row anything, so that all values may be NaN."""
    batch = build(case(**PHASES["chunked"], dtype="float32"))
    cache = torch.full_like(cache_of(batch, 0.0), torch.nan)
    params = msgspec.structs.replace(batch.params, window=0)
    found = FlexAttention(False).forward(batch.query, cache, metadata_of(batch), params)
    assert not found.any()


def test_layers_of_one_batch_share_what_the_mask_makes_of_it() -> None:
    """Another mask, another batch and other ranges are another matter."""
    runtime = FlexAttention(False)
    batch = build(case(queries="2+2", contexts="40+33", ranges=True, dtype="float32"))
    metadata, cache = metadata_of(batch), cache_of(batch, 0.0)
    sliding = msgspec.structs.replace(batch.params, window=5)
    moved = msgspec.structs.replace(batch.params, prefix_ranges=batch.params.prefix_ranges + 9)
    for params in (batch.params, sliding, moved, batch.params, sliding):
        given = msgspec.structs.replace(batch, params=params)
        found = runtime.forward(batch.query, cache, metadata, params)
        wanted = specified(given, cache)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
        assert len(runtime._batches) <= 3


def test_a_single_head_lies_at_one_stride_whatever_the_layout() -> None:
    """A kernel is compiled for each, and the two layouts of one head are the same memory."""
    batch = build(case(heads=4, kv_heads=1, dtype="float32"))
    cache, metadata = cache_of(batch, 0.0), metadata_of(batch)
    pages, page, _, width = cache.shape
    apart = torch.empty(pages, 1, page, width).transpose(1, 2).copy_(cache)
    assert apart.stride() != cache.stride()
    tokens = batch.query.shape[0]
    seen = []
    for one in (cache, apart):
        cut = batch_of(one, metadata, batch.params, tokens, torch.float32, place="cache")
        key, value = keys_and_values(one, batch.query.shape[2], cut.pages, torch.float32)
        seen.append((key.stride(), value.stride()))
        assert value.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
    assert seen[0] == seen[1]


# torch's compiler calls what torch has deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_compiled_kernel_serves_all_lengths_windows_chunks_and_ranges() -> None:
    """Torch's counter of compiled graphs moves once; every batch is right."""
    runtime = FlexAttention(True)
    shape = {"heads": 4, "kv_heads": 2, "head_size": 32, "dtype": "float32"}
    cases: tuple[Case, ...] = tuple(
        case(**shape, **changes)
        for changes in (
            {"queries": "16+5", "contexts": "49+70"},
            {"queries": "1", "contexts": "3"},
            {"queries": "1+1+1+1+1", "contexts": "64+64+64+64+64", "window": 9},
            {"queries": "4+0+9", "contexts": "300+0+33", "chunk": 24, "ranges": True},
            {"queries": "7", "contexts": "7", "causal": False},
        )
    )
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    verdicts = [try_case(runtime, one).verdict for one in cases]
    assert verdicts == ["pass"] * len(cases)
    assert counters["unique_graphs"] - before == 1


def test_a_cache_beyond_32_bit_offsets_is_packed() -> None:
    """Page 7768 of 276480 elements begins past 2^31; the copy is indexed in 64 bits."""
    shape = (16, 8, 2160)
    near = torch.empty(7767, *shape, dtype=torch.float16, device="meta")
    far = torch.empty(7768, *shape, dtype=torch.float16, device="meta")
    assert in_place_possible(near, torch.float16)
    assert not in_place_possible(far, torch.float16)
    assert not in_place_possible(near, torch.bfloat16)
    assert not in_place_possible(near.transpose(1, 2), torch.float16)


def test_a_processor_without_a_working_compiler_computes_unfused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One warning says why; the numbers are the same; asked for by name it is an error."""
    batch = build(case(queries="200", contexts="200", dtype="float32", heads=1, kv_heads=1))
    given = (batch.query, cache_of(batch, 0.0), metadata_of(batch), batch.params)
    monkeypatch.setattr(kernel, "UNFUSED_SCORES", 1)
    monkeypatch.setattr(torch, "compile", _failing)
    runtime = FlexAttention()
    with pytest.warns(UserWarning, match="computes unfused, slowly: .*no compiler"):
        found = runtime.forward(*given)
    torch.testing.assert_close(found, FlexAttention(False).forward(*given))
    runtime.forward(*given)
    with pytest.raises(BackendCompilerFailed):
        FlexAttention(True).forward(*given)


def _failing(*_: Any, **__: Any) -> Any:
    def run(*_: Any) -> Any:
        raise BackendCompilerFailed(_named, RuntimeError("no compiler"), None)

    return run


def _named() -> None:
    """A backend, as far as torch's error wants one."""


@pytest.mark.parametrize(
    ("page", "width", "itemsize", "shared", "tiles"),
    [
        (16, 64, 2, 227, (64, 16, 3)),
        (272, 64, 2, 227, (64, 16, 3)),
        (96, 128, 2, 227, (64, 32, 3)),
        (128, 128, 2, 227, (64, 64, 3)),
        (128, 128, 2, 99, (64, 64, 2)),
        (128, 256, 2, 99, (64, 32, 2)),
        (128, 256, 4, 99, (64, 16, 1)),
        (128, 512, 2, 227, (64, 32, 2)),
        (64, 512, 4, 227, (32, 16, 2)),
        (64, 128, 2, None, (64, 64, 0)),
    ],
)
def test_tiles_on_a_gpu_divide_the_page_and_fit(
    page: int, width: int, itemsize: int, shared: int | None, tiles: tuple[int, int, int]
) -> None:
    """torch's own tile of 128 keys reaches over a page's end, and over a small GPU's memory."""
    kib = None if shared is None else shared << 10
    assert fitted(128, width, width, page, itemsize, kib) == tiles
    assert fitted(16, width, width, page, itemsize, kib)[0] == 16
    assert options((64, 16, 0)) == {
        "BLOCK_M": 64,
        "BLOCK_N": 16,
        "FORCE_USE_FLEX_ATTENTION": True,
    }
    assert options(tiles).get("num_stages", 0) == tiles[2]


def test_sinks_are_refused() -> None:
    """They would be left out in silence otherwise."""
    with pytest.raises(InputError, match="sinks are not in flex_attention"):
        try_case(FlexAttention(False), case(sinks=True))


def test_heads_that_do_not_divide_are_refused() -> None:
    """A cache whose heads and pages are swapped is told so."""
    batch = build(case(heads=8, kv_heads=2))
    cache = cache_of(batch, 0.0).transpose(1, 2)[:, :, :3]
    with pytest.raises(InputError, match="do not divide by the cache's 3 KV heads"):
        FlexAttention().forward(batch.query, cache, metadata_of(batch), batch.params)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_layout_that_gives_the_same_tensors_is_not_traced_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the cache's own strides are, of which keys and values are views, is not asked."""
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **more: compiler(f, backend="eager", **more))
    runtime = FlexAttention(True, "cache")
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    for lengths in ("33+1+17", "90+2"):
        shape = {"heads": 2, "kv_heads": 1, "head_size": 32, "dtype": "float32"}
        batch = build(case(queries=lengths, contexts=lengths, **shape))
        cache, metadata = cache_of(batch, 0.0), metadata_of(batch)
        pages, page, _, width = cache.shape
        apart = torch.empty(pages, 1, page, width).transpose(1, 2).copy_(cache)
        for one in (apart, cache):
            found = runtime.forward(batch.query, one, metadata, batch.params)
            torch.testing.assert_close(
                found.double(), specified(batch, cache), rtol=1e-5, atol=1e-5
            )
    assert counters["unique_graphs"] - before == 1
