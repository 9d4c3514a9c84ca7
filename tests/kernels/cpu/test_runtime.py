"""CPU_ATTN through the library call."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnctl.exits import InputError
from attnctl.ops import paged_cases, paged_inputs
from attnctl.ops.paged import Paged, paged_attention
from attnctl.runtime import Metadata, PagedRuntime, open_backend


@pytest.fixture(scope="module")
def runtime() -> PagedRuntime:
    return open_backend("CPU_ATTN")


def metadata_of(runtime: PagedRuntime, batch: paged_inputs.Batch, slots: torch.Tensor) -> Metadata:
    return runtime.build_metadata(
        batch.query_start_loc.long(),
        batch.seq_lens.long(),
        batch.block_table.long(),
        slots,
        max_query_len=batch.max_query_len,
        max_seq_len=batch.max_seq_len,
    )


def test_the_backend_opens_by_name(runtime: PagedRuntime) -> None:
    """What serving engines ask of a backend."""
    assert isinstance(runtime, PagedRuntime)
    assert runtime.get_name() == "CPU_ATTN"
    assert runtime.is_ssm() is False


def test_one_batch_from_shape_to_output(runtime: PagedRuntime) -> None:
    """Cache in the order that the backend prefers, two writes, a forward: the specification."""
    case = paged_cases.case(page=32, dtype="bfloat16", head_size=96, head_size_v=64)
    batch = paged_inputs.build(case)
    shape, order = runtime.cache_shape(batch.num_blocks, 32, 2, 96, 64), (0, 2, 1, 3)
    cache = torch.full([shape[x] for x in order], torch.nan, dtype=torch.bfloat16)
    cache = cache.permute([order.index(x) for x in range(4)])
    assert tuple(cache.shape) == shape
    for part in (~batch.new, batch.new):
        metadata = metadata_of(runtime, batch, batch.slots[part])
        runtime.write_cache(batch.key[part], batch.value[part], cache, metadata, batch.params)
    out = runtime.forward(batch.query, cache, metadata, batch.params)
    assert (out.dtype, tuple(out.shape)) == (torch.bfloat16, (39, 8, 64))
    wanted = paged_attention(
        batch.query,
        cache[..., :96],
        cache[..., 96:],
        batch.block_table,
        batch.query_start_loc,
        batch.seq_lens,
        batch.params,
    )
    torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-2)
    mine = torch.full_like(out, torch.nan)
    assert runtime.forward(batch.query, cache, metadata, batch.params, mine) is mine
    assert torch.equal(mine, out)


def test_heads_that_do_not_divide_are_refused(runtime: PagedRuntime) -> None:
    """A cache in another order of dimensions is the usual reason, and the sentence says so."""
    case = paged_cases.case(page=32)
    batch = paged_inputs.build(case)
    metadata = metadata_of(runtime, batch, batch.slots)
    cache = torch.zeros(batch.num_blocks, 2, 32, 128, dtype=torch.float16)
    with pytest.raises(InputError, match=r"8 query heads.*32 KV heads"):
        runtime.forward(batch.query, cache, metadata, batch.params)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16])
def test_scales_of_the_wrong_kind_are_refused(runtime: PagedRuntime, dtype: torch.dtype) -> None:
    """An int8 cache without scale tensors, a float16 cache with them."""
    case = paged_cases.case(page=32)
    batch = paged_inputs.build(case)
    metadata = metadata_of(runtime, batch, batch.slots)
    cache = torch.zeros(batch.num_blocks, 32, 2, 128, dtype=dtype)
    scale = 1.0 if dtype == torch.int8 else torch.ones(batch.num_blocks, 32, 2)
    params = Paged(scale=1.0, k_scale=scale, v_scale=scale)
    with pytest.raises(InputError, match="takes k_scale and v_scale as"):
        runtime.forward(batch.query, cache, metadata, params)


def test_one_openmp_serves_torch_and_the_kernels(runtime: PagedRuntime) -> None:
    """Two of them in one process would fight for the processors."""
    case = paged_cases.case(page=32)
    batch = paged_inputs.build(case)
    cache = torch.zeros(runtime.cache_shape(batch.num_blocks, 32, 2, 64), dtype=torch.float16)
    metadata = metadata_of(runtime, batch, batch.slots)
    runtime.write_cache(batch.key, batch.value, cache, metadata, batch.params)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    loaded = {line.split()[-1] for line in maps if "libgomp" in line or "libomp" in line}
    assert len(loaded) <= 1, loaded
