"""Times latent attention in Triton on a GPU against FlashMLA, FlashAttention-3 and torch.

    python benchmarks/mla_gpu.py [check] [dense] [queries] [sparse] [packed] [indexer] [prefill]
                     [short] [sweep-dense] [sweep-sparse] [sweep-indexer] [sweep-prefill]

Every time has its error beside it: ours against the specification's mathematics in float64, on some
rows of the same batch. Times are medians of CUDA graphs that go through enough input sets to leave
the L2 behind; prefill is timed in graphs of one batch and by events with a flushed L2, the rivals
in turns, torch by the fastest of its backends. The floor is the larger of bytes over the measured
read bandwidth and operations over the measured matrix rate. With PEER naming a folder of unpacked
vLLM 0.33 wheels, FlashMLA and FlashAttention-3 are timed beside. With OUT, $OUT/mla_gpu.json,
rewritten after every row.
"""

from __future__ import annotations

import sys

import torch
import triton
from mla_batches import Pool
from mla_check import check
from mla_dense import dense, queries
from mla_indexer import indexer
from mla_prompts import prefill, short
from mla_rows import Rows
from mla_sparse import packed, sparse
from mla_sweeps import sweep_dense, sweep_indexer, sweep_prefill, sweep_sparse


def main():
    asked = set(sys.argv[1:]) or {"check", "dense", "sparse", "packed", "indexer", "prefill"}
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
    failures = check() if "check" in asked else []
    if asked != {"check"}:
        found = Rows()
        if asked & {"dense", "queries", "sweep-dense"}:
            pool = Pool(128 * 65536)
            steps = (("dense", dense), ("queries", queries), ("sweep-dense", sweep_dense))
            for name, step in steps:
                if name in asked:
                    step(found, pool)
            del pool
        for name, step in (
            ("sparse", sparse), ("packed", packed), ("indexer", indexer), ("short", short),
            ("prefill", prefill),
            ("sweep-sparse", sweep_sparse), ("sweep-indexer", sweep_indexer),
            ("sweep-prefill", sweep_prefill),
        ):  # fmt: skip
            if name in asked:
                try:
                    step(found)
                except Exception as error:
                    print("FAILED", name, type(error).__name__, str(error)[:300], flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
