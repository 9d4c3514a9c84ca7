"""Compiles the kernels of latent attention for a GPU that is not here; one JSON line a launch.

Run in a process of its own, `python -m tests.kernels.latent_compile sm_90 128`: a failing pass of
the compiler may abort. Tensors are without memory; the launches are those that a batch would get.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from attnctl.kernels.triton.indexer import logits_launch, pick_launch
from attnctl.kernels.triton.latent_call import decode_launches, sparse_launches
from attnctl.kernels.triton.latent_launch import Gpu, Launch
from attnctl.kernels.triton.merge_states import merge_launch
from attnctl.kernels.triton.mla_prefill import prefill_launch
from attnctl.kernels.triton.scatter_rows import scatter_launch
from attnctl.ops.indexer import Indexing
from attnctl.ops.mla import Latent
from attnctl.runtime import Metadata

# vendor documents: CUDA's compute-capability table, AMD's instruction-set guides
GPUS = {
    "sm_80": Gpu("sm_80", 108, 166912),
    "sm_86": Gpu("sm_86", 84, 101376),
    "sm_90": Gpu("sm_90", 132, 232448),
    "sm_120": Gpu("sm_120", 170, 101376),
    "gfx90a": Gpu("gfx90a", 104, 65536),
    "gfx942": Gpu("gfx942", 304, 65536),
    "gfx1100": Gpu("gfx1100", 96, 65536),
}

TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
}


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


def launches(gpu: Gpu, heads: int) -> Iterator[Launch]:
    """DeepSeek V3's widths: 512 + 64 absorbed, 192 and 128 uncompressed, an indexer of 64 heads."""
    metadata, params = batch(8), Latent(scale=0.07, kv_lora_rank=512)
    query, out = tensor(8, heads, 576), tensor(8, heads, 512)
    lse = tensor(8, heads, dtype=torch.float32)
    plain, packed = tensor(64, 64, 576), tensor(64, 64, 656, dtype=torch.uint8)
    slots = tensor(8, 2048, dtype=torch.int32)
    yield from decode_launches(query, plain, metadata, params, out, lse, gpu)
    fp8 = tensor(64, 64, 576, dtype=torch.float8_e4m3fn)
    yield from decode_launches(query, fp8, metadata, params, out, None, gpu)[:1]
    for cache in (plain, packed):
        yield from sparse_launches(query, cache, slots, metadata, params, out, lse, gpu)[:1]
    keys, values = tensor(4096, heads, 192), tensor(4096, heads, 128)
    starts = metadata.query_start_loc
    states = (tensor(8, heads, 128), lse)
    yield prefill_launch(
        tensor(8, heads, 192), keys, values, starts, metadata, 0.1, True, *states, gpu
    )
    yield merge_launch((*states, *states), *states)
    yield scatter_launch(packed[0], packed, metadata.slot_mapping)
    index, logits = tensor(64, 64, 132, dtype=torch.uint8), tensor(8, 8192, dtype=torch.float32)
    weights, indexing = tensor(8, 64, dtype=torch.float32), Indexing(topk=2048, scale=0.01)
    for asked in (tensor(8, 64, 128), tensor(8, 64, 128, dtype=torch.float8_e4m3fn)):
        yield logits_launch(asked, weights, index, metadata, indexing, logits, gpu)
    # two groups of columns, the second not whole
    wide = tensor(64, 64, 200, dtype=torch.uint8)
    yield logits_launch(tensor(8, 64, 192), weights, wide, metadata, indexing, logits, gpu)
    yield pick_launch(logits, metadata, 2048, slots)


def compiled(launch: Launch, gpu: Gpu) -> dict[str, object]:
    options = {k: v for k, v in launch.constants.items() if k in ("num_warps", "num_stages")}
    values = dict(zip(launch.kernel.arg_names, launch.arguments, strict=False))
    values.update({k: v for k, v in launch.constants.items() if k not in options})
    signature, fixed, attributes = {}, {}, {}
    for index, (name, value) in enumerate(values.items()):
        signature[name] = kind(value, constant=name in launch.constants)
        if signature[name] == "constexpr":
            fixed[name] = value
        elif isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=fixed, attrs=attributes)
    hip = gpu.arch.startswith("gfx")
    name = gpu.arch if hip else int(gpu.arch.removeprefix("sm_"))
    wave = 64 if gpu.arch.startswith("gfx9") else 32
    target = GPUTarget("hip" if hip else "cuda", name, wave)
    found = triton.compile(source, target=target, options=options)
    return {
        "kernel": launch.kernel.__name__,
        "shared": found.metadata.shared,
        "limit": gpu.shared_memory_bytes,
    }


def kind(value: object, *, constant: bool) -> str:
    """Triton's name of an argument's type, as a launch would specialise it."""
    if constant or value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, int):
        return "i32" if abs(value) < 2**31 else "i64"
    return "fp32"


if __name__ == "__main__":
    chosen = GPUS[sys.argv[1]]
    for one in launches(chosen, int(sys.argv[2])):
        print(json.dumps(compiled(one, chosen)), flush=True)
