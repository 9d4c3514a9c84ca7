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
import logging
import os
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnctl.backends.flash_attn_mla.kernel import FlashAttnMla
from attnctl.backends.flashmla.kernel import FlashMla
from attnctl.backends.flashmla_sparse.kernel import FlashMlaSparse
from attnctl.exits import InputError
from attnctl.ops import mla_cases, mla_sparse_cases, mla_sparse_trial, mla_trial
from attnctl.ops.mla import Latent
from attnctl.ops.mla_sparse import sparse_latent_attention
from attnctl.ops.packed_rows import pack_rows
from attnctl.ops.paged_cases import PHASES

PEER = Path(os.environ.get("PEER", "."))
OUT = Path(os.environ.get("OUT", "."))
FLASH3, FLASHMLA = "vllm.vllm_flash_attn", "vllm.third_party.flashmla.flash_mla_interface"
FP8 = "vllm.v1.attention.ops.flashmla"
BACKENDS: dict[str, tuple[Any, Any, Any]] = {
    "FLASHMLA": (FlashMla, mla_cases, mla_trial),
    "FLASH_ATTN_MLA": (FlashAttnMla, mla_cases, mla_trial),
    "FLASHMLA_SPARSE": (FlashMlaSparse, mla_sparse_cases, mla_sparse_trial),
}
RESTARTS = 12


class Platform:
    """What vLLM's modules ask of the device."""

    def is_cuda(self) -> bool:
        return True

    def has_device_capability(self, wanted: int) -> bool:
        major, minor = torch.cuda.get_device_capability()
        return major * 10 + minor >= wanted

    def is_device_capability_family(self, wanted: int) -> bool:
        return torch.cuda.get_device_capability()[0] == wanted // 10


def load(name: str) -> Any:
    """vLLM's two modules without the package around them, and what is the project's own."""
    if name.startswith("attnctl."):
        return import_module(name)
    if name not in (FLASH3, FLASHMLA, FP8):
        raise ModuleNotFoundError(f"{name}: left out, so that vLLM's is what runs")
    if "vllm" not in sys.modules:
        for one in ("vllm", FLASH3):
            sys.modules[one] = types.ModuleType(one)
            sys.modules[one].__path__ = [str(PEER.joinpath(*one.split(".")))]
        sys.modules[FLASH3].__path__ += [str(PEER), str(PEER / "fa"), *sys.path]
        sys.modules["vllm"].__path__.append(os.environ.get("EXTENSION", str(PEER)))
        sys.modules["vllm.logger"] = types.ModuleType("vllm.logger")
        sys.modules["vllm.logger"].init_logger = logging.getLogger
        sys.modules["vllm.platforms"] = types.ModuleType("vllm.platforms")
        sys.modules["vllm.platforms"].current_platform = Platform()
    found = import_module(f"{FLASH3}.flash_attn_interface" if name == FLASH3 else name)
    if name == FP8 and not found.is_flashmla_dense_supported()[0]:
        raise ModuleNotFoundError(found.is_flashmla_dense_supported()[1])
    return found


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


def drawn(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda").bfloat16()


def limits() -> int:
    """What FlashMLA's sparse kernels make of heads, lengths of lists and rows without a slot."""
    flashmla = load(FLASHMLA)
    rows = drawn(4 * 64, 576)
    params = Latent(scale=0.05, kv_lora_rank=512)
    for heads in (1, 8, 16, 32, 64, 128):
        for places in (32, 64, 128, 192):
            query = drawn(3, heads, 576, seed=heads)
            slots = torch.randint(0, 256, (3, places), device="cuda", dtype=torch.int32)
            slots[0], slots[1, ::2] = -1, -1
            try:
                found, _, top = flashmla.flash_mla_sparse_fwd(
                    query, rows[:, None], slots[:, None], 0.05, 512
                )
                exact, lse = sparse_latent_attention(
                    query.cpu(), rows.view(4, 64, 576).cpu(), slots.cpu(), params
                )
                error = float((found.cpu().double() - exact)[1:].abs().max())
                says = f"error {error:.2e}, lse {float((top.cpu() - lse)[1:].abs().max()):.2e}"
                says += f", empty {float(found[0].abs().max())} {float(top[0, 0])}"
            except RuntimeError as problem:
                says = str(problem).splitlines()[0][:160]
            print(f"plain {heads} heads {places} places: {says}", flush=True)
            print(f"packed {heads} heads {places} places: {packed_says(flashmla, query, slots)}")
    return 0


def packed_says(flashmla: Any, query: Tensor, slots: Tensor) -> str:
    """What the decoding kernel makes of the same over packed rows."""
    rows = drawn(4 * 64, 576).cpu()
    packed = pack_rows(rows[:, :512], rows[:, 512:]).view(4, 64, 656)
    try:
        found, top = flashmla.flash_mla_with_kvcache(
            query[:, None],
            packed.cuda()[:, :, None],
            None,
            None,
            512,
            flashmla.get_mla_metadata()[0],
            softmax_scale=0.05,
            is_fp8_kvcache=True,
            indices=slots[:, None],
        )
    except RuntimeError as problem:
        return str(problem).splitlines()[0][:160]
    params = Latent(scale=0.05, kv_lora_rank=512)
    exact, lse = sparse_latent_attention(query.cpu(), packed, slots.cpu(), params)
    error = float((found[:, 0].cpu().double() - exact)[1:].abs().max())
    says = f"error {error:.2e}, lse {float((top[:, :, 0].cpu() - lse)[1:].abs().max()):.2e}"
    return f"{says}, empty {float(found[0].abs().max())} {float(top[0].max())}"


def fp8() -> int:
    """Cases over FP8 caches, with the numbers of each."""
    runtime, bad = FlashMla(load), 0
    query, cache = drawn(1, 16, 576), torch.zeros(1, 64, 576, device="cuda")
    asked = runtime.query_dtype(query, cache.to(torch.float8_e4m3fn))
    print(f"queries are rounded to {asked}", flush=True)
    for heads in (1, 8, 16, 64, 128):
        for name, phase in PHASES.items():
            one = mla_cases.case(**{**phase, "heads": heads, "kv_cache_dtype": "fp8_e4m3"})
            try:
                found = mla_trial.try_case(runtime, one, "cuda")
                said = f"{found.verdict} {found.detail} {found}"
                bad += found.verdict != "pass"
            except Exception as error:  # a case that fails is what this is for
                said, bad = f"{type(error).__name__}: {str(error)[:300]}", bad + 1
            print(f"{name} {heads} heads: {said}", flush=True)
    return 1 if bad else 0


def graphed(call: Callable[[], object], rounds: int = 30) -> float:
    """Median microseconds of a call in a graph, the caches as the working set leaves them."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    found = []
    for _ in range(rounds):
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


def dense_times(heads: int, batch: int = 64, length: int = 4096) -> dict[str, float]:
    """FLASHMLA and FLASH_ATTN_MLA on one decode batch, in microseconds."""
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
