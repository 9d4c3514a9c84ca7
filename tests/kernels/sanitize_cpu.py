"""Runs the processor's kernels under the address and undefined-behaviour sanitizers.

python -m tests.kernels.sanitize_cpu: exit status 0 where no case is wrong and nothing is reported.
Not a test by name: the sanitizer must be loaded before Python, so this starts itself again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from attnctl.kernels.cpu.build import SOURCE, build, compilers, isa_flags
from attnctl.kernels.cpu.latent import INDEXER_SOURCE, LATENT_SOURCE
from attnctl.ops.case import Value
from attnctl.probe.cpu import probe_cpu
from attnctl.probe.ledger import Ledger
from attnctl.probe.realhost import RealHost

FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

CASES: tuple[dict[str, Value], ...] = (
    {},
    {"queries": "70+33+1+4+0+1", "contexts": "70+150+64+129+0+1"},
    {"window": 7, "ranges": True, "sinks": True, "softcap": 4.0, "alibi": True},
    {"chunk": 16, "layout": "NHD", "page": 7},
    {"head_size": 40, "head_size_v": 72, "fused_qkv": True, "padding": 3},
    {"head_size": 13, "head_size_v": 5, "heads": 7, "kv_heads": 1},
    {"heads": 71, "kv_heads": 1, "queries": "1", "contexts": "1100"},
    {"head_size": 512, "queries": "1+30", "contexts": "65+30"},
    {"kv_cache_dtype": "fp8"},
    {"kv_cache_dtype": "fp8_e5m2", "head_size": 40},
    {"kv_cache_dtype": "int8_per_token_head", "head_size": 72},
)


LATENT: tuple[tuple[str, dict[str, Value]], ...] = (
    ("mla", {"queries": "3+0+1", "contexts": "130+9+700"}),
    ("mla", {"lora": 192, "rope": 24, "heads": 5, "dtype": "float32"}),
    ("mla", {"form": "uncompressed", "queries": "70+2", "contexts": "70+33", "chunk": 16}),
    ("mla", {"kv_cache_dtype": "fp8_e4m3"}),
    ("mla_sparse", {"picks": "stray", "topk": 129, "heads": 20}),
    ("mla_sparse", {"picks": "nothing", "kv_cache_dtype": "fp8_ds_mla", "lora": 256}),
    ("mla_sparse", {"picks": "indexer", "kv_cache_dtype": "fp8_ds_mla"}),
    ("indexer", {"index_heads": 5, "head_dim": 256, "queries": "9+1", "contexts": "9+2100"}),
    ("indexer", {"query_dtype": "fp8_e4m3", "head_dim": 40, "topk": 3000, "contexts": "1+15+33"}),
    ("merge_states", {}),
)


def run_latent_cases(paged: str, latent: str, indexer: str) -> int:
    import torch

    from attnctl.backends.cpu_mla.kernel import CpuMla
    from attnctl.backends.cpu_mla_sparse.kernel import CpuMlaSparse
    from attnctl.kernels.cpu.indexer_call import NativeIndexer
    from attnctl.kernels.cpu.latent_call import NativeLatent
    from attnctl.ops.catalog import case_of, try_case

    torch.set_num_threads(3)
    wrong, dense, sparse = 0, CpuMla(), CpuMlaSparse()
    dense._kernels = NativeLatent(latent, paged)
    sparse._kernels = dense._kernels, NativeIndexer(indexer)
    for op, changes in LATENT:
        backend = sparse if op in ("mla_sparse", "indexer") else dense
        result = try_case(backend, case_of(op, changes), "cpu")
        print(result.verdict, op, changes, flush=True)
        wrong += result.verdict != "pass"
    return min(wrong, 1)


def run_cases(library: str) -> int:
    import torch

    from attnctl.kernels.cpu.call import NativeKernels
    from tests.kernels.cpu_batches import judge

    torch.set_num_threads(3)
    kernels, wrong = NativeKernels(library), 0
    for changes in CASES:
        for dtype in ("float32", "float16", "bfloat16"):
            result = judge(kernels, **{"dtype": dtype, **changes})
            print(result.verdict, dtype, changes, flush=True)
            wrong += result.verdict != "pass"
    return min(wrong, 1)


def main() -> int:
    if len(sys.argv) > 1:
        return run_cases(sys.argv[1]) or run_latent_cases(*sys.argv[1:])
    environ = dict(os.environ)
    cpu = probe_cpu(RealHost(), Ledger())
    with tempfile.TemporaryDirectory() as folder:
        environ["XDG_CACHE_HOME"] = folder
        flags, paths = (*isa_flags(cpu.arch, cpu.isa), *FLAGS), []
        for source in (SOURCE, LATENT_SOURCE, INDEXER_SOURCE):
            made = build(source, flags, environ)
            if made.path is None or FLAGS[-1] not in made.finding.found:
                print(made.finding.found)
                return 1
            paths.append(made.path)
        asked = [*compilers(environ)[0], "-print-file-name=libasan.so"]
        library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        environ.update(LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0")
        line = [sys.executable, "-m", "tests.kernels.sanitize_cpu", *paths]
        return subprocess.run(line, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
