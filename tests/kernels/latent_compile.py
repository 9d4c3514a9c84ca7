"""Compiles the kernels of latent attention for a GPU that is not here; one JSON line a launch.

Run in a process of its own, `python -m tests.kernels.latent_compile sm_90 128`: a failing pass of
the compiler may abort. Tensors are without memory; the launches are those that a batch would get.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec
import torch

from attnctl.kernels.triton.crosscompile import compile_launch, shared_limit
from attnctl.kernels.triton.indexer import logits_launch, pick_launch
from attnctl.kernels.triton.latent_call import decode_launches, sparse_launches
from attnctl.kernels.triton.launch import Device, Launch
from attnctl.kernels.triton.merge_states import merge_launch
from attnctl.kernels.triton.mla_prefill import prefill_launch
from attnctl.kernels.triton.scatter_rows import scatter_launch
from attnctl.kernels.triton.settle_rows import name_launch, settle_launch
from attnctl.ops.indexer import Indexing
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata


def tensor(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def batch(tokens: int) -> Metadata:
    return Metadata(
        query_start_loc=tensor(tokens + 1, dtype=torch.int32),
        seq_lens=tensor(tokens, dtype=torch.int32),
        block_table=tensor(tokens, 128, dtype=torch.int32),
        slot_mapping=tensor(tokens, dtype=torch.int64),
        max_query_len=1,
        max_seq_len=8192,
    )


def launches(device: Device, heads: int) -> Iterator[Launch]:
    """DeepSeek V3's widths: 512 + 64 absorbed, 192 and 128 uncompressed, an indexer of 64 heads."""
    metadata, params = batch(8), Latent(scale=0.07, kv_lora_rank=512)
    query, out = tensor(8, heads, 576), tensor(8, heads, 512)
    lse = tensor(8, heads, dtype=torch.float32)
    plain, packed = tensor(64, 64, 576), tensor(64, 64, 656, dtype=torch.uint8)
    slots = tensor(8, 2048, dtype=torch.int32)
    yield from decode_launches(query, plain, metadata, params, out, lse, device)
    for cache in (plain, packed):
        yield from sparse_launches(query, cache, slots, metadata, params, out, lse, device)[:1]
    keys, values = tensor(4096, heads, 192), tensor(4096, heads, 128)
    starts = metadata.query_start_loc
    states = (tensor(8, heads, 128), lse)
    yield prefill_launch(
        tensor(8, heads, 192), keys, values, starts, metadata, 0.1, True, *states, device
    )
    yield merge_launch((*states, *states), *states)
    yield scatter_launch(packed[0], packed, metadata.slot_mapping)
    count = tensor(8, dtype=torch.int32)
    yield name_launch(slots, 4096, slots, count)
    yield settle_launch(out, lse, out, lse, starts, count, 1.0)
    yield settle_launch(out, None, out, None, starts, None, 0.5)
    index, logits = tensor(64, 64, 132, dtype=torch.uint8), tensor(8, 8192, dtype=torch.float32)
    weights, indexing = tensor(8, 64, dtype=torch.float32), Indexing(topk=2048, scale=0.01)
    asked = tensor(8, 64, 128, dtype=torch.float8_e4m3fn)
    yield logits_launch(asked, weights, index, metadata, indexing, logits, device)
    # two groups of columns, the second not whole
    wide = tensor(64, 64, 200, dtype=torch.uint8)
    yield logits_launch(tensor(8, 64, 192), weights, wide, metadata, indexing, logits, device)
    yield pick_launch(logits, metadata, 2048, slots)


if __name__ == "__main__":
    target = sys.argv[1]
    # as many compute units as the larger chips of today: what decides how far keys are cut
    device = Device(target, 132, shared_limit(target))
    for one in launches(device, int(sys.argv[2])):
        print(msgspec.json.encode(compile_launch(one, target)).decode(), flush=True)
