"""The adapters of latent attention beside the bare calls."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from typing import Any

import torch
from latent_adapter_peers import FLASH3, FLASHMLA, OUT, drawn, load
from torch import Tensor

from attnctl.backends.flash_attn_mla.kernel import FlashAttnMla
from attnctl.backends.flashmla.kernel import FlashMla
from attnctl.backends.flashmla_sparse.kernel import FlashMlaSparse
from attnctl.ops.mla import Latent

ROUNDS = 30


def graphed(call: Callable[[], object]) -> float:
    """Median microseconds of a call in a graph, the caches as the working set leaves them."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    found = []
    for _ in range(ROUNDS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        found.append(first.elapsed_time(last) * 1e3)
    return round(statistics.median(found), 1)


def times() -> int:
    """Sparse calls of 64 and 1024 queries over 2048 slots each; dense decodes of 64 sequences."""
    flashmla, found = load(FLASHMLA), {}
    file = OUT / "latent_adapters.json"
    adapter, params = FlashMlaSparse(load), Latent(scale=0.05, kv_lora_rank=512)
    cache = drawn(4096, 64, 576)
    rows = cache.flatten(0, 1)
    packed = torch.zeros(4096, 64, 656, dtype=torch.uint8, device="cuda")
    for tokens, heads in ((64, 16), (64, 64), (64, 128), (1024, 128), (1024, 16)):
        query = drawn(tokens, heads, 576)
        slots = torch.randint(0, 4096 * 64, (tokens, 2048), device="cuda", dtype=torch.int32)
        wide = torch.nn.functional.pad(query, (0, 0, 0, max(0, 64 - heads)))
        starts = torch.arange(tokens + 1, device="cuda", dtype=torch.int32)
        ones = torch.ones(tokens, device="cuda", dtype=torch.int32)
        metadata = adapter.build_metadata(
            starts, ones, ones[:, None], ones.long(), max_query_len=1, max_seq_len=1
        )

        def bare(q: Tensor, slots: Tensor = slots) -> object:
            return flashmla.flash_mla_sparse_fwd(q, rows[:, None], slots[:, None], 0.05, 512)

        def forward(
            held: Tensor, q: Tensor = query, s: Tensor = slots, m: Any = metadata
        ) -> object:
            return adapter.forward(q, held, m, s, params)

        calls = {
            "bare": lambda q=query: bare(q),
            "bare at 64 heads": lambda q=wide: bare(q),
            "adapter": lambda f=forward: f(cache),
            "adapter packed": lambda f=forward: f(packed),
        }
        for name, call in calls.items():
            key = f"sparse {tokens} x {heads}: {name}"
            try:
                found[key] = graphed(call)
            except RuntimeError as problem:
                found[key] = str(problem).splitlines()[0][:160]
            file.write_text(json.dumps(found, indent=1))
    for heads in (16, 128):
        found |= dense_times(heads)
        file.write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))
    return 0


def dense_times(heads: int) -> dict[str, float]:
    """FLASHMLA and FLASH_ATTN_MLA on one decode batch, in microseconds."""
    batch, length = 64, 4096
    pages = length // 64
    cache, query = drawn(batch * pages, 64, 576), drawn(batch, heads, 576)
    found = {}
    for make in (FlashMla, FlashAttnMla):
        runtime = make(load)
        metadata = runtime.build_metadata(
            torch.arange(batch + 1, device="cuda", dtype=torch.int32),
            torch.full((batch,), length, device="cuda", dtype=torch.int32),
            torch.arange(batch * pages, device="cuda", dtype=torch.int32).view(batch, pages),
            torch.full((batch,), -1, device="cuda"),
            max_query_len=1,
            max_seq_len=length,
        )
        params = Latent(scale=0.05, kv_lora_rank=512)
        call = lambda r=runtime, m=metadata, p=params: r.forward(query, cache, m, p)  # noqa: E731
        found[f"dense {batch} x {heads} of {length}: {runtime.get_name()}"] = graphed(call)
    flash = load(FLASH3).flash_attn_varlen_func
    for page in (64, 32, 16):
        pages = cache.view(-1, page, 576)[:, :, None]
        table = torch.arange(pages.shape[0], device="cuda", dtype=torch.int32).view(batch, -1)

        def bare(pages: Tensor = pages, table: Tensor = table, m: Any = metadata) -> Any:
            return flash(
                query[..., 512:],
                pages[..., 512:],
                pages[..., :512],
                1,
                m.query_start_loc,
                length,
                seqused_k=m.seq_lens,
                q_v=query[..., :512],
                softmax_scale=0.05,
                causal=True,
                block_table=table,
                fa_version=3,
            )

        found[f"dense {batch} x {heads} of {length}: FA3, pages of {page}"] = graphed(bare)
    return found
