"""Runs the processor's kernels under the address and undefined-behaviour sanitizers.

python -m tests.kernels.cpu.sanitize: exit status 0 where no case is wrong and nothing is reported.
Not a test by name: the sanitizer must be loaded before Python, so this starts itself again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from attnctl.kernels.cpu import latent, paged, state_call
from attnctl.kernels.cpu.build import isa_flags
from attnctl.kernels.cpu.build_compilers import compilers
from attnctl.ops.case import Value
from attnctl.probe.cpu import probe_cpu
from attnctl.probe.ledger import Ledger
from attnctl.probe.realhost import RealHost

FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SHARED = ("-std=c++17", "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared", "-w")

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
    {"heads": 2, "kv_heads": 2, "queries": "1", "contexts": "67", "kv_cache_dtype": "fp8"},
    {"heads": 2, "kv_heads": 2, "queries": "1", "contexts": "67", "layout": "NHD"},
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


def run_latent(paged: str, latent: str, indexer: str) -> int:
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


def run_tiles(library: str) -> int:
    """Every batch of bfloat16 in tiles, whose products plain C++ computes."""
    return run_cases(library, direct_rows=0)


def run_cases(library: str, **knobs: int) -> int:
    import torch

    from attnctl.kernels.cpu.call import NativeKernels
    from tests.kernels.cpu.batches import judge

    torch.set_num_threads(3)
    kernels, wrong = NativeKernels(library), 0
    kernels.tune(**knobs)
    for changes in CASES:
        for dtype in ("float32", "float16", "bfloat16"):
            result = judge(kernels, **{"dtype": dtype, **changes})
            print(result.verdict, dtype, changes, flush=True)
            wrong += result.verdict != "pass"
    return min(wrong, 1)


def run_states(library: str) -> int:
    import torch

    from attnctl.kernels.cpu.state_call import NativeStates
    from attnctl.ops.state_cases import cases
    from attnctl.ops.state_trial import try_case
    from tests.kernels.cpu.test_states_calls import Kernels

    torch.set_num_threads(3)
    kernels, wrong = NativeStates(library), 0
    for op in ("gdn", "mamba1", "mamba2", "linear", "short_conv"):
        for case in cases(op)[::2]:
            result = try_case(Kernels(op, kernels), case)
            print(result.verdict, case.text, flush=True)
            wrong += result.verdict != "pass"
    return min(wrong, 1)


def compiled(source: Path, flags: tuple[str, ...], folder: Path) -> str:
    """The shared object; attnctl's own build would load it into this process, which is none of its.

    CalledProcessError: the compiler refuses it.
    """
    target = folder / f"{source.stem}.so"
    line = [*compilers(dict(os.environ))[0], *SHARED, *flags, *FLAGS, "-o", str(target)]
    subprocess.run([*line, "-x", "c++", str(source)], check=True)
    return str(target)


def main() -> int:
    if len(sys.argv) > 2:
        runs = {"paged": run_cases, "tiles": run_tiles, "latent": run_latent, "states": run_states}
        return runs[sys.argv[1]](*sys.argv[2:])
    cpu = probe_cpu(RealHost(), Ledger())
    flags = (*isa_flags(cpu.arch, cpu.isa), "-fopenmp")
    sources = {
        "paged": (paged.SOURCE,),
        "tiles": (paged.SOURCE,),
        "latent": (paged.SOURCE, latent.LATENT_SOURCE, latent.INDEXER_SOURCE),
        "states": (state_call.SOURCE,),
    }
    asked = [*compilers(dict(os.environ))[0], "-print-file-name=libasan.so"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True)
    preload = {"LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    with tempfile.TemporaryDirectory() as folder:
        for name, files in sources.items():
            more = ("-DTILES_EMULATED",) if name == "tiles" else ()
            paths = [compiled(source, (*flags, *more), Path(folder)) for source in files]
            line = [sys.executable, "-m", "tests.kernels.cpu.sanitize", name, *paths]
            status = subprocess.run(line, env={**os.environ, **preload}, check=False).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
