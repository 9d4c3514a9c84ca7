"""Tries FLASH_ATTN through vLLM's FlashAttention 3, and FLEX_ATTENTION, on a Hopper GPU.

    PEER=FOLDER PYTHONPATH=. python benchmarks/adapter_gpu.py [cases] [overhead] [flex]

FOLDER holds vllm/vllm_flash_attn/ of the unpacked vLLM 0.33 wheel: flash_attn_interface.py and
_vllm_fa3_C.abi3.so. cases: every smoke case against the specification. overhead: what forward of
one decode batch costs the host beside the bare call. flex: some cases compiled, the cache in place
and packed. Exit code 1 where a case is wrong. With OUT, $OUT/adapter_gpu.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from importlib import import_module
from pathlib import Path

import torch

from attnctl.backends.flex_attention.kernel import FlexAttention
from attnctl.exits import InputError
from attnctl.kernels.paged.flash_runtime import FlashAttention
from attnctl.ops.paged import Paged
from attnctl.ops.paged_cases import PHASES, case, cases
from attnctl.ops.paged_trial import try_case

PACKAGE = "vllm.vllm_flash_attn"
FLEX = (
    {},
    {"window": 7},
    {"chunk": 24, "ranges": True},
    {"softcap": 5.0},
    {"alibi": True, "window": 9},
    {"head_size": 192, "head_size_v": 128, "heads": 4, "kv_heads": 1},
    {"head_size": 80, "heads": 8, "kv_heads": 8, "dtype": "bfloat16"},
    {"page": 272, "dtype": "bfloat16"},
    {"window": 7, "poison": True},
    {"chunk": 24, "poison": True, "page": 48},
    {"causal": False, "window": 6, "window_right": 5, "poison": True},
    {"layout": "HND", "window": 7, "poison": True},
    {"head_size": 256, "dtype": "float32", "page": 128},
    {"head_size": 512, "heads": 2, "kv_heads": 1, "page": 64, "dtype": "bfloat16"},
    {"head_size": 512, "heads": 2, "kv_heads": 1, "page": 64, "dtype": "float32"},
)


def main(wanted: list[str]) -> int:
    wanted = wanted or ["cases", "overhead", "flex"]
    found: dict[str, object] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    bad = 0
    if "cases" in wanted:
        found["cases"] = [try_flash("FLASH_ATTN"), try_flash("FLASH_ATTN_DIFFKV")]
        bad += sum(one["bad"] for one in found["cases"])
    if "overhead" in wanted:
        found["overhead_us"] = overhead()
    if "flex" in wanted:
        found["flex"] = [try_flex(place) for place in ("cache", "packed")]
        bad += sum(one["bad"] for one in found["flex"])
    if os.environ.get("OUT"):
        Path(os.environ["OUT"], "adapter_gpu.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found))
    return 1 if bad else 0


def load(name: str):
    """vLLM's flash module alone, without the package around it; nothing else is installed."""
    if name != PACKAGE:
        raise ModuleNotFoundError(f"{name}: left out, so that FA3 is what runs")
    folder = Path(os.environ["PEER"], "vllm", "vllm_flash_attn")
    if PACKAGE not in sys.modules:
        for one, path in (("vllm", folder.parent), (PACKAGE, folder)):
            sys.modules[one] = types.ModuleType(one)
            sys.modules[one].__path__ = [str(path)]
        sys.modules["vllm.platforms"] = types.ModuleType("vllm.platforms")
        sys.modules["vllm.platforms"].current_platform = Platform()
    return import_module(f"{PACKAGE}.flash_attn_interface")


class Platform:
    """What flash_attn_interface asks of the device."""

    def has_device_capability(self, wanted):
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor >= wanted

    def is_device_capability_family(self, wanted):
        return torch.cuda.get_device_capability()[0] == wanted // 10


def try_flash(name: str) -> dict[str, object]:
    """Every case of its operation: passed, bad, and refused with the sentence."""
    runtime = FlashAttention(name, load)
    op = "diffkv" if name.endswith("DIFFKV") else "paged"
    mine = [one for one in cases() if one.op == op and one["dtype"] != "float32"]
    return {"backend": name, **tried(runtime, mine)}


def try_flex(place: str) -> dict[str, object]:
    mine = [case(**{**PHASES[phase], **one}) for one in FLEX for phase in ("chunked", "decode")]
    start = time.perf_counter()
    found = tried(FlexAttention(True, place), mine)
    return {"place": place, **found, "seconds": round(time.perf_counter() - start, 1)}


def tried(runtime, mine) -> dict[str, object]:
    passed, bad, refused = 0, 0, {}
    for one in mine:
        try:
            comparison = try_case(runtime, one, "cuda")
        except InputError as error:
            refused[one.text] = str(error)
            continue
        except Exception as error:  # a case that fails is what this is for
            bad += 1
            print(f"{one}: {type(error).__name__}: {str(error)[:300]}")
            continue
        passed += comparison.verdict == "pass"
        if comparison.verdict != "pass":
            bad += 1
            print(f"{one}: {comparison.verdict}: {comparison.detail}")
    return {"passed": passed, "bad": bad, "refused": refused}


def overhead() -> dict[str, float]:
    """Host microseconds a call: forward, the bare function, and what lies between."""
    batch, length, calls = 16, 64, 300
    runtime = FlashAttention("FLASH_ATTN", load)
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    shape = runtime.cache_shape(batch * 4, 16, 8, 128)
    cache = torch.zeros(shape, **options)
    query = torch.randn(batch, 32, 128, **options)
    out = torch.empty_like(query)
    starts = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
    lengths = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    table = torch.arange(batch * 4, dtype=torch.int32, device="cuda").view(batch, 4)
    slots = torch.zeros(batch, dtype=torch.int64, device="cuda")
    metadata = runtime.build_metadata(
        starts, lengths, table, slots, max_query_len=1, max_seq_len=length
    )
    params = Paged(scale=128**-0.5)
    function = load(PACKAGE).flash_attn_varlen_func
    keys, values = cache[..., :128], cache[..., 128:]

    def bare():
        function(
            query,
            keys,
            values,
            max_seqlen_q=1,
            cu_seqlens_q=starts,
            max_seqlen_k=length,
            seqused_k=lengths,
            softmax_scale=params.scale,
            causal=True,
            block_table=table,
            out=out,
            fa_version=3,
        )

    times = {
        "forward": host_us(lambda: runtime.forward(query, cache, metadata, params, out), calls),
        "bare": host_us(bare, calls),
    }
    return {**times, "added": round(times["forward"] - times["bare"], 2)}


def host_us(call, calls: int) -> float:
    """The least of 20 rounds of the host's time for a call, the device kept out of it."""
    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
    return round(best / calls * 1e6, 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
