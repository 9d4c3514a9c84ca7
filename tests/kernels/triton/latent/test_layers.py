"""What the layers of a batch share in the uncompressed form, and that none gets another's."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from attnctl.kernels.triton.latent.prefill_call import prefill_attend, prefill_launch
from attnctl.kernels.triton.launch import Device
from attnctl.kernels.triton.stand_in import standing_on
from attnctl.ops.mla import Latent, uncompressed_attention
from attnctl.runtime import Metadata, open_backend
from tests.kernels.triton.batches import DEVICE
from tests.kernels.triton.kept import Kept, same

RANK, ROPE, NOPE, HEADS, VALUE = 32, 16, 16, 2, 16
PARAMS = Latent(scale=0.2, kv_lora_rank=RANK)


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).half().to(DEVICE)


def batch(runtime, queries: list[int], lengths: list[int], page: int, turn: int) -> Metadata:
    pages = -(-max(lengths) // page)
    table = torch.arange(len(lengths) * pages, device=DEVICE).roll(turn)
    return runtime.build_metadata(
        torch.tensor([0, *queries], device=DEVICE).cumsum(0).int(),
        torch.tensor(lengths, device=DEVICE).int(),
        table.view(len(lengths), pages).int(),
        torch.full((sum(queries),), -1, device=DEVICE),
        max_query_len=max(queries),
        max_seq_len=max(lengths),
    )


@pytest.mark.parametrize("name", ["TRITON_MLA", "CPU_MLA"])
def test_layers_share_where_a_batchs_context_lies_and_no_other_batch_does(name: str) -> None:
    """Two layers, other lengths, another table, parts of the context, other pages, the first."""
    runtime = open_backend(name)
    page = 64 if name == "CPU_MLA" else 16
    first = batch(runtime, [3, 20], [40, 20], page, 0)
    calls = (
        (first, page, 0),
        (first, page, 0),
        (batch(runtime, [3, 20], [39, 21], page, 0), page, 0),
        (batch(runtime, [3, 20], [40, 20], page, 1), page, 0),
        (first, page, 16),
        (first, page, 16),
        (batch(runtime, [3, 20], [40, 20], 2 * page, 0), 2 * page, 0),
        (first, page, 0),
    )
    shared = []
    for seed, (metadata, size, chunk) in enumerate(calls):
        cache = drawn(6, size, RANK + ROPE, seed=seed)
        query = drawn(23, HEADS, NOPE + ROPE, seed=seed + 50)
        weights = drawn(HEADS, NOPE, RANK, seed=1), drawn(HEADS, VALUE, RANK, seed=2)
        found = runtime.prefill(query, cache, metadata, PARAMS, *weights, chunk=chunk)
        names = ("block_table", "query_start_loc", "seq_lens")
        lengths = [getattr(metadata, one) for one in names]
        wanted, _ = uncompressed_attention(query, cache, *lengths, *weights, PARAMS)
        error = (found.double() - wanted).norm() / wanted.norm()
        assert error < 4e-3
        shared.append(runtime._parts[2])
    same_as_before = [one is two for one, two in pairwise(shared)]
    assert same_as_before == [True, False, False, False, True, False, False]


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def prompts(starts: Tensor) -> Metadata:
    """Two of at most 512 tokens each."""
    return Metadata(
        query_start_loc=starts,
        seq_lens=tensor(2, dtype=torch.int32),
        block_table=starts[None],
        slot_mapping=starts,
        max_query_len=512,
        max_seq_len=512,
    )


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("width", [192, 160])
def test_every_argument_of_a_kept_prefill_is_that_of_a_new_one(alike: bool, width: int) -> None:
    """Hopper's kernel and the portable one; keys that begin where the queries do, or elsewhere."""
    kept, factor = Kept(interpreted=False), 0.1 * 1.4426950408889634
    with standing_on(Device("sm_90", 132, 232448)):
        for _ in range(2):
            starts = tensor(3, dtype=torch.int32)
            key_starts = starts if alike else tensor(3, dtype=torch.int32)
            metadata = prompts(starts)
            query, keys = tensor(1024, 16, width), tensor(1024, 16, width)
            tensors = (query, keys, tensor(1024, 16, 128), key_starts, metadata)
            out, lse = prefill_attend(*tensors, 0.1, causal=True, max_keys=512, kept=kept)
        wanted = prefill_launch(*tensors, factor, True, out, lse)
    assert len(kept.made) == len(kept.again) == 1
    grid, values, _ = kept.again[0]
    assert grid == (*wanted.grid, 1, 1)[:3]
    named = dict(zip(wanted.kernel.arg_names, wanted.arguments, strict=False)) | wanted.constants
    held = {id(one) for one in (query, keys, tensors[2], key_starts, starts, out, lse)}
    for name, value in zip(wanted.kernel.arg_names, values, strict=True):
        same(value, named[name], held)


def test_keys_that_begin_elsewhere_are_another_form() -> None:
    """One tensor for both starts, then two: the second launch reads the keys' own."""
    kept = Kept(interpreted=False)
    starts, other = tensor(3, dtype=torch.int32), tensor(3, dtype=torch.int32)
    metadata = prompts(starts)
    query, values = tensor(1024, 16, 192), tensor(1024, 16, 128)
    with standing_on(Device("sm_90", 132, 232448)):
        for key_starts in (starts, other):
            prefill_attend(
                query, query.clone(), values, key_starts, metadata, 0.1, causal=True,
                max_keys=512, kept=kept,
            )  # fmt: skip
    assert (len(kept.made), kept.again) == (2, [])
