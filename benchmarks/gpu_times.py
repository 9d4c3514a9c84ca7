"""Times of calls on a GPU, and the two measured rates that a floor is made of."""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor

import torch
from triton.testing import do_bench, do_bench_cudagraph

GPU = torch.device("cuda")
ROUNDS = 15


def graph_ms(calls, replays=7):
    """The median over replays of one graph of all calls, a call's share; or why it failed."""
    try:
        for call in calls[:2]:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        graph.replay()
        times = []
        for _ in range(replays):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / len(calls))
        return statistics.median(times)
    except Exception as error:  # what does not run here is a fact to report
        return f"{type(error).__name__}: {str(error)[:150]}"


def milliseconds(call, *, graph, rep=40):
    """The median time of a call, in a graph or by events with a flushed L2; or why it failed."""
    try:
        with torch.no_grad():
            call()
            torch.cuda.synchronize()
            if graph:
                return do_bench_cudagraph(call, rep=rep, return_mode="median")
            return do_bench(call, warmup=10, rep=rep, return_mode="median")
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"


def turns_ms(calls):
    """Median by name: calls in turns, so that all of them meet the same clock, the L2 flushed."""
    flush = torch.empty(2**26, device=GPU, dtype=torch.int32)
    marks = {name: [] for name in calls}
    for call in calls.values():
        call()
    for name, call in [*calls.items()] * ROUNDS:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        begin.record()
        call()
        end.record()
        marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {n: statistics.median(a.elapsed_time(b) for a, b in pairs) for n, pairs in marks.items()}


def compile_all(launches):
    """Compiles launches side by side: the constants decide what is compiled."""
    unique = {}
    for launch in launches:
        constants = str(sorted(launch.constants.items(), key=str))
        kinds = str([type(x).__name__ if x is not None else x for x in launch.arguments])
        unique[launch.kernel.__name__, constants, kinds] = launch

    def compile_one(launch):
        try:
            launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.constants)
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:150]}"
        return None

    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(compile_one, unique.values()))


class Ceilings:
    """The two measured rates of this card: a read of 2 GiB, a product of 8192."""

    def __init__(self):
        source = torch.randn(2**30, device=GPU, dtype=torch.bfloat16)
        seconds = do_bench(lambda: source.view(torch.int16).amax(), return_mode="median") / 1e3
        self.read = source.nbytes / seconds
        one, other = torch.randn(2, 8192, 8192, device=GPU, dtype=torch.bfloat16)
        self.matrix = 2 * 8192**3 / (do_bench(lambda: one @ other, return_mode="median") / 1e3)
        print(
            f"read {self.read / 1e12:.2f} TB/s, matrix {self.matrix / 1e12:.0f} TFLOP/s", flush=True
        )

    def floor_ms(self, read_bytes, operations):
        return 1e3 * max(read_bytes / self.read, operations / self.matrix)
