"""Pages so far into a cache that a 32-bit offset would wrap, in a file that is nearly all hole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnctl.kernels.triton.paged import Knobs, paged_attention, write_cache
from attnctl.ops import paged as specification
from attnctl.ops.paged import Paged
from tests.kernels.triton.batches import DEVICE, SMALL

PAGE, HEADS, WIDTH = 16, 1, 16
# 2^31 elements lie just below page 7767 of this stride, which is no power of two
STRIDE = 276480
FAR = (7766, 7767, 7768)


def far_cache(file: Path, fill: bool) -> torch.Tensor:
    """[7769, P, 1, 16] over a sparse file: only the pages that are written take any room."""
    elements = FAR[-1] * STRIDE + PAGE * HEADS * WIDTH
    if DEVICE == "cpu":
        whole = torch.from_file(str(file), shared=True, size=elements, dtype=torch.float16)
    else:
        whole = torch.empty(elements, dtype=torch.float16, device=DEVICE)
    strides = (STRIDE, HEADS * WIDTH, WIDTH, 1)
    cache = whole.as_strided((FAR[-1] + 1, PAGE, HEADS, WIDTH), strides)
    if fill:
        generator = torch.Generator().manual_seed(len(file.name))
        for page in FAR:
            values = torch.randn(PAGE, HEADS, WIDTH, generator=generator)
            cache[page] = values.half().to(DEVICE)
    return cache


@pytest.mark.parametrize("queries", [1, 18])
def test_attention_reads_pages_beyond_2_31_elements(queries: int, tmp_path: Path) -> None:
    """The same output as with the same pages at the start of a small cache."""
    keys, values = far_cache(tmp_path / "k", True), far_cache(tmp_path / "value", True)
    query = torch.randn(queries, 2, WIDTH, generator=torch.Generator().manual_seed(3))
    query = query.half().to(DEVICE)
    starts = torch.tensor([0, queries], device=DEVICE).int()
    lengths = torch.tensor([45], device=DEVICE).int()
    params = Paged(scale=0.25)
    outs = []
    for cache, other, pages in ((keys, values, FAR), (near(keys), near(values), (0, 1, 2))):
        table = torch.tensor([pages], device=DEVICE).int()
        inputs = (query, cache, other, table, starts, lengths, params)
        outs.append(
            paged_attention(
                *inputs,
                max_query_len=queries,
                max_seq_len=45,
                knobs=Knobs(decode=SMALL.decode, prefill=SMALL.prefill, least_keys=16),
            )
        )
    assert torch.equal(outs[0], outs[1])
    exact = specification.paged_attention(*inputs)
    torch.testing.assert_close(outs[0].double(), exact, rtol=0, atol=2e-3)


def test_the_cache_write_reaches_pages_beyond_2_31_elements(tmp_path: Path) -> None:
    """The slots of the far pages hold their rows."""
    keys, values = far_cache(tmp_path / "k", False), far_cache(tmp_path / "v", False)
    slots = torch.tensor([page * PAGE + 5 for page in FAR], device=DEVICE)
    rows = torch.randn(3, HEADS, WIDTH, generator=torch.Generator().manual_seed(4))
    rows = rows.half().to(DEVICE)
    write_cache(rows, -rows, keys, values, slots)
    assert torch.equal(torch.stack([keys[page, 5] for page in FAR]), rows)
    assert torch.equal(torch.stack([values[page, 5] for page in FAR]), -rows)


def near(cache: torch.Tensor) -> torch.Tensor:
    return torch.stack([cache[page] for page in FAR])
