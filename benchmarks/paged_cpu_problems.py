"""The shapes that CPU_ATTN is timed on, each with its calls: ours, torch's and vLLM's."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch
from torch import Tensor

from attnctl.backends.cpu_attn.kernel import RUNTIME
from attnctl.ops.paged import Paged

PAGE = 128


class Shape(msgspec.Struct, frozen=True):
    """B sequences of S context tokens each, of which the last `queries` are this batch's."""

    name: str
    batch: int
    context: int
    queries: int
    heads: int = 32
    kv_heads: int = 8
    width: int = 128


SHAPES = (
    Shape("decode B=16 S=2048", 16, 2048, 1),
    Shape("decode B=1 S=32768", 1, 32768, 1),
    Shape("decode B=4 S=8192", 4, 8192, 1),
    Shape("decode B=16 S=2048 MHA 16", 16, 2048, 1, 16, 16),
    Shape("decode B=32 S=512", 32, 512, 1),
    Shape("decode B=8 S=4096 32/4 x64", 8, 4096, 1, 32, 4, 64),
    Shape("4-token decode B=8 S=4096", 8, 4096, 4),
    Shape("prefill 1x1024", 1, 1024, 1024),
    Shape("prefill 1x2048 MHA 16x64", 1, 2048, 2048, 16, 16, 64),
    Shape("prefill 8x256", 8, 256, 256),
    Shape("chunk 1x256 on 4096", 1, 4096, 256),
)


def enlarged(shape: Shape, times: int) -> Shape:
    """The shape with so many times its sequences."""
    if times == 1:
        return shape
    return msgspec.structs.replace(
        shape, name=f"{shape.name}, {times} times", batch=shape.batch * times
    )


class Problem:
    """The tensors of one shape, K and V side by side, head-major inside a page."""

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(7)
        self.shape, self.dtype = shape, dtype
        pages = -(-shape.context // PAGE)
        count = pages * shape.batch
        sizes = (count, shape.kv_heads, PAGE, 2 * shape.width)
        self.cache = torch.randn(sizes, generator=generator).to(dtype).permute(0, 2, 1, 3)
        order = torch.randperm(count, generator=generator)
        self.table = order.view(shape.batch, pages).to(torch.int32)
        tokens = shape.batch * shape.queries
        self.query = torch.randn(tokens, shape.heads, shape.width, generator=generator).to(dtype)
        self.starts = torch.arange(0, tokens + 1, shape.queries, dtype=torch.int32)
        self.lens = torch.full((shape.batch,), shape.context, dtype=torch.int32)
        self.out = torch.empty_like(self.query)
        self.scale = shape.width**-0.5

    @property
    def cache_bytes(self) -> int:
        return self.cache.numel() * self.cache.element_size()

    def flops(self) -> float:
        s = self.shape
        pairs = s.queries * s.context - s.queries * (s.queries - 1) / 2
        return 4.0 * s.batch * s.heads * s.width * pairs

    def ours(self, table: Tensor | None = None) -> Callable[[], object]:
        metadata = RUNTIME.build_metadata(
            self.starts,
            self.lens,
            self.table if table is None else table,
            torch.zeros(0, dtype=torch.int64),
            max_query_len=self.shape.queries,
            max_seq_len=self.shape.context,
        )
        params, runtime = Paged(scale=self.scale), RUNTIME
        return lambda: runtime.forward(self.query, self.cache, metadata, params, self.out)

    def sdpa(self) -> Callable[[], object]:
        s = self.shape
        mask = None
        if 1 < s.queries < s.context:
            i = torch.arange(s.context - s.queries, s.context)[:, None]
            mask = torch.arange(s.context)[None, :] <= i

        def run() -> Tensor:
            rows = self.cache[self.table.long()].flatten(1, 2).transpose(1, 2)
            keys, values = rows[..., : s.width], rows[..., s.width :]
            query = self.query.view(s.batch, s.queries, s.heads, s.width).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(
                query,
                keys,
                values,
                attn_mask=mask,
                is_causal=s.queries == s.context,
                enable_gqa=True,
                scale=self.scale,
            )

        return run

    def vllm(self) -> Callable[[], object]:
        """The op as vLLM 0.32's CPU backend calls it, its schedule made beforehand."""
        s, ops = self.shape, torch.ops._C
        amx = torch.cpu._is_amx_tile_supported() and self.dtype == torch.bfloat16
        isa = "amx" if amx else "vec"
        pages = self.cache.shape[0]
        shape = (pages, s.kv_heads, 2 * PAGE, s.width)
        keys, values = torch.zeros(shape, dtype=self.dtype).chunk(2, dim=2)
        rows = self.cache.flatten(0, 1)
        key, value = rows[..., : s.width].contiguous(), rows[..., s.width :].contiguous()
        slots = torch.arange(pages * PAGE)
        ops.cpu_attn_reshape_and_cache(key, value, keys, values, slots, isa, 1.0, 1.0, "auto")
        schedule = ops.get_scheduler_metadata(
            s.batch,
            s.heads,
            s.kv_heads,
            s.width,
            self.lens,
            self.dtype,
            self.starts,
            True,
            -1,
            isa,
            True,
            None,
            "auto",
        )
        out = torch.empty_like(self.query)

        def run() -> Tensor:
            ops.cpu_attention_with_kv_cache(
                self.query,
                keys,
                values,
                out,
                self.starts,
                self.lens,
                self.scale,
                True,
                None,
                -1,
                self.table,
                0.0,
                schedule,
                None,
                None,
                1.0,
                1.0,
                "auto",
            )
            return out

        return run
