"""Tries the adapters of latent attention on a Hopper GPU, through vLLM 0.33's extensions.

    PEER=FOLDER OUT=FOLDER PYTHONPATH=. python benchmarks/latent_adapter_gpu.py cases NAME
    ... limits | fp8 | times

PEER holds, of the unpacked vLLM wheel, vllm/_flashmla_C.abi3.so, vllm/third_party/flashmla/ and
vllm/vllm_flash_attn/ with flash_attn_interface.py and _vllm_fa3_C.abi3.so. cases: every smoke case
of one backend against the specification, what the library computes first, in children that a fault
of the device may end; OUT/NAME.jsonl. limits: which heads, lists and rows FlashMLA's kernels take.
fp8: FLASHMLA over FP8 caches, where PEER or EXTENSION holds vllm/_flashmla_extension_C.abi3.so.
times: the adapters beside the bare calls. Exit code 1 where a case is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import torch
from latent_adapter_limits import fp8, limits
from latent_adapter_peers import OUT, load
from latent_adapter_times import times

from attnctl.backends.flash_attn_mla.kernel import FlashAttnMla
from attnctl.backends.flashmla.kernel import FlashMla
from attnctl.backends.flashmla_sparse.kernel import FlashMlaSparse
from attnctl.exits import InputError
from attnctl.ops import mla_cases, mla_sparse_cases, mla_sparse_trial, mla_trial

BACKENDS: dict[str, tuple[Any, Any, Any]] = {
    "FLASHMLA": (FlashMla, mla_cases, mla_trial),
    "FLASH_ATTN_MLA": (FlashAttnMla, mla_cases, mla_trial),
    "FLASHMLA_SPARSE": (FlashMlaSparse, mla_sparse_cases, mla_sparse_trial),
}

RESTARTS = 12


def run_cases(name: str) -> int:
    """Starts children one after another until every case has its line."""
    file, first = OUT / f"{name}.jsonl", 0
    file.write_text("")
    for _ in range(RESTARTS):
        words = [sys.executable, __file__, "child", name, str(first)]
        done = subprocess.run(words, check=False)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        if done.returncode == 0:
            break
        first = lines[-1]["index"] + 1 if lines else first + 1
    count = {x: sum(line["status"] == x for line in lines) for x in ("pass", "bad", "refused")}
    print(name, count)
    return 1 if count["bad"] else 0


def bundled(one: Any) -> bool:
    """Whether a case is likely the bundled kernels', which compile first."""
    plain = one["dtype"] != "float32" and one["kv_cache_dtype"] in ("auto", "fp8_ds_mla")
    return not plain or one.params.get("form") == "uncompressed" or one["lora"] not in (256, 512)


def child(name: str, first: int) -> int:
    """Cases from `first` on; ends with 1 after one that leaves the device unusable."""
    torch.set_num_threads(2)  # several of these run side by side
    make, cases, trial = BACKENDS[name]
    runtime = make(load)
    file = OUT / f"{name}.jsonl"
    for index, one in enumerate(sorted(cases.cases(), key=bundled)):
        if index < first:
            continue
        start = time.perf_counter()
        try:
            found = trial.try_case(runtime, one, "cuda")
            status, detail = ("pass" if found.verdict == "pass" else "bad"), found.detail
        except InputError as error:
            status, detail = "refused", str(error)
        except Exception as error:  # a case that fails is what this is for
            status, detail = "bad", f"{type(error).__name__}: {str(error)[:400]}"
        seconds = round(time.perf_counter() - start, 2)
        line = {"index": index, "case": one.text, "status": status, "detail": detail}
        with file.open("a") as lines:
            lines.write(json.dumps({**line, "seconds": seconds}) + "\n")
        if status == "bad":
            print(f"{name} {one}: {detail[:300]}")
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                return 1
    return 0


def main(words: list[str]) -> int:
    match words:
        case ["cases", name]:
            return run_cases(name)
        case ["child", name, first]:
            return child(name, int(first))
        case ["limits"]:
            return limits()
        case ["fp8"]:
            return fp8()
        case ["times"]:
            return times()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
