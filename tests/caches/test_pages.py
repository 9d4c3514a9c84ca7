"""Pages: bytes per token of each cache dtype, and block sizes that hold a state."""

from __future__ import annotations

from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnctl.caches.pages import (
    HybridBlocks,
    KernelBlocks,
    common_block_size,
    indexer_bytes,
    latent_bytes,
    token_bytes,
    unify,
)
from attnctl.exits import InputError

PAGES_16 = KernelBlocks(sizes=(16,))


@pytest.mark.parametrize(
    ("kv_cache_dtype", "expected"),
    [
        ("auto", 8 * 2 * 128 * 2),
        ("fp8_e5m2", 8 * 2 * 128),
        ("int8_per_token_head", 8 * 2 * (128 + 4)),
        ("int4_per_token_head", 8 * 2 * (64 + 4)),
        ("nvfp4", 8 * 2 * (64 + 8)),
        ("float32", 8 * 2 * 128 * 4),
    ],
)
def test_a_token_takes_what_its_cache_dtype_says(kv_cache_dtype: str, expected: int) -> None:
    """K and V of eight heads of width 128 in bfloat16, scales included."""
    assert token_bytes(8, 128, 128, kv_cache_dtype, "bfloat16") == expected


def test_kv_heads_are_shared_out_but_never_to_nothing() -> None:
    """Two KV heads on eight ranks leave one on each; widths of K and V may differ."""
    assert token_bytes(2, 192, 128, "auto", "float16", tp=8) == (192 + 128) * 2
    assert token_bytes(8, 64, 64, "auto", "float16", tp=4) == 2 * 2 * 64 * 2


def test_a_latent_row_is_the_same_on_every_rank() -> None:
    """DeepSeek's 576-wide row, plain, in fp8, packed, and with a scale per token."""
    assert latent_bytes(576, "auto", "bfloat16") == 1152
    assert latent_bytes(576, "fp8", "bfloat16") == 576
    assert latent_bytes(576, "fp8_ds_mla", "bfloat16") == 656
    assert latent_bytes(576, "nvfp4_ds_mla", "bfloat16") == 352
    assert latent_bytes(576, "fp8_per_token_head", "bfloat16") == 584
    assert indexer_bytes(128) == 132


def test_multiples_are_taken_and_exact_sizes_are_exact() -> None:
    """A block is split into kernel blocks, unless the kernel says that it cannot."""
    assert PAGES_16.accepts(None)
    assert PAGES_16.accepts(544)
    assert not PAGES_16.accepts(8)
    assert not KernelBlocks(sizes=(64, 128), exact=True).accepts(256)
    assert KernelBlocks(sizes=(64, 128), exact=True, prefers=128).preferred(16) == 128
    assert KernelBlocks(sizes=(64, 32)).preferred(16) == 32


def test_several_kernels_agree_on_the_least_common_size() -> None:
    """The default if all take it, else the least common multiple, else nothing."""
    assert common_block_size([], 16) == 16
    assert common_block_size([PAGES_16, KernelBlocks(sizes=(32,))], 64) == 64
    assert common_block_size([PAGES_16, KernelBlocks(sizes=(48, 64))], 16) == 48
    exact = [KernelBlocks(sizes=(16,), exact=True), KernelBlocks(sizes=(64,), exact=True)]
    assert common_block_size(exact, 16) is None


@given(
    kernels=st.lists(
        st.builds(
            KernelBlocks,
            sizes=st.sampled_from([(1,), (16,), (32, 64), (64,), (128,)]),
        ),
        min_size=1,
        max_size=3,
    ),
    per_token=st.sampled_from([576, 1024, 1152, 4096]),
    state=st.integers(1, 4_000_000),
    start=st.sampled_from([16, 32, 64, 128, 1024]),
    align=st.none() | st.sampled_from([1, 64, 100]),
    floor=st.sampled_from([1, 128]),
)
def test_the_chosen_block_holds_the_state_and_is_minimal(
    kernels: list[KernelBlocks],
    per_token: int,
    state: int,
    start: int,
    align: int | None,
    floor: int,
) -> None:
    """Every kernel takes it, its page holds a state, it only grows, one step less is short."""
    found = unify(kernels, per_token, state, block_size=start, floor=floor, align=align)
    if found is None:
        return
    size = found.block_size
    assert size >= start
    assert size * per_token >= state
    assert size == start or all(kernel.accepts(size) for kernel in kernels)
    assert found.padded_page_bytes in (None, size * per_token)
    assert (found.padded_page_bytes is None) == (size * per_token == state)
    granule = max(floor, min(kernels[0].sizes), start)
    granule = granule if align is None else lcm(granule, align)
    step = lcm(granule, *(min(kernel.sizes) for kernel in kernels))
    assert (size - step) * per_token < state or size == start
    assert found.mamba_block_size == (None if align is None else size)


def test_without_a_state_nothing_grows() -> None:
    """A model without states keeps its block size and pads nothing."""
    assert unify([PAGES_16], 1024, 0, block_size=16) == HybridBlocks(
        block_size=16, page_bytes=16384, state_bytes=0
    )


def test_a_kernel_with_exact_sizes_refuses_a_grown_block() -> None:
    """The answer is None, which an engine turns into its own error."""
    exact = KernelBlocks(sizes=(64, 128), exact=True, prefers=128)
    assert unify([exact], 1024, 10_000_000, block_size=128) is None


def test_a_last_rounding_is_the_engine_s_own() -> None:
    """XPU wants multiples of 64 for the delta rule: 544 becomes 576 and the page grows with it."""
    plain = unify([PAGES_16], 2048, 1_097_728, block_size=16)
    wide = unify([PAGES_16], 2048, 1_097_728, block_size=16, round_to=64)
    assert plain is not None
    assert wide is not None
    assert (plain.block_size, plain.padded_page_bytes) == (544, 1_114_112)
    assert (wide.block_size, wide.padded_page_bytes) == (576, 1_179_648)


def test_senseless_sizes_are_refused() -> None:
    """A layer of no bytes per token has no block size."""
    with pytest.raises(InputError, match="at least one byte"):
        unify([PAGES_16], 0, 10, block_size=16)


@pytest.mark.parametrize(
    ("granule", "block", "page", "percent"),
    [(16, 528, 2_162_688, 0.571), (32, 544, 2_228_224, 3.619), (64, 576, 2_359_296, 9.714)],
)
def test_a_coarser_kernel_pays_for_its_page_in_padding(
    granule: int, block: int, page: int, percent: float
) -> None:
    """8 KV heads x 128 in 2 bytes beside a state of 2,150,400 bytes: the state's size stays."""
    kernel = KernelBlocks(sizes=(granule,))
    found = unify([kernel], 8 * 128 * 2 * 2, 2_150_400, block_size=granule)
    assert found is not None
    assert (found.block_size, found.page_bytes, found.padded_page_bytes) == (block, page, page)
    assert found.state_bytes == 2_150_400
    assert round(100 * (page / found.state_bytes - 1), 3) == percent
