"""What a kernel becomes on a GPU that this machine does not have, by Triton's compiler alone.

`python -m attnctl.kernels.triton.crosscompile CASE TARGET` compiles one case's launches and prints
one JSON line a launch. A failing pass prints a whole module and may abort, so compile_in_child is
how others ask.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnctl.exits import InputError

Format = Literal["bf16", "fp16", "fp32", "e4m3", "e5m2", "int8"]

# vendor documents: CUDA's compute-capability table, AMD's instruction-set guides; not measured
SHARED_MEMORY = {
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_100": 232448,
    "sm_103": 232448,
    "sm_120": 101376,
    "sm_121": 101376,
    "gfx90a": 65536,
    "gfx942": 65536,
    "gfx950": 163840,
    "gfx1100": 65536,
    "gfx1201": 65536,
}
"""Bytes that one block may have, by arch."""

MATRIX = re.compile(r"\b(wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*|\b(v_mfma|v_wmma|v_smfmac)\w*")


MULTIPLIES = ("prefill_kernel", "decode_kernel")
"""The kernels that must use the matrix unit."""


class CompileCase(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel with the knobs that its launch gets on the target."""

    kernel: Literal["prefill", "decode", "cache"] = "prefill"
    width: int = 128
    value_width: int | None = None
    dtype: Format = "bf16"
    cache: Format | None = None
    page: int = 16
    heads: int = 32
    kv_heads: int = 8
    window: int | None = None
    sinks: bool = False
    softcap: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one launch compiled to. matrix: the matrix instructions' names, without duplicates."""

    kernel: str
    target: str
    shared_bytes: int
    shared_limit_bytes: int
    registers: int
    spills: int
    matrix: tuple[str, ...]
    seconds: float = 0.0

    def faults(self, most_spills: int = 512) -> tuple[str, ...]:
        """Why this would not load, or would crawl: empty where it is as it should be.

        most_spills: bytes a thread (NVIDIA) or registers (AMD).
        """
        found = []
        if self.shared_bytes > self.shared_limit_bytes:
            found.append(f"shared memory {self.shared_bytes} of {self.shared_limit_bytes} bytes")
        if self.spills > most_spills:
            found.append(f"spills {self.spills}, at most {most_spills} are allowed")
        if self.kernel in MULTIPLIES and not self.matrix:
            found.append("multiplies without the matrix unit")
        return tuple(found)


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a case did not compile: the last line that the child wrote."""

    target: str
    reason: str


def compile_in_child(
    case: CompileCase, target: str, timeout_s: float = 300.0
) -> tuple[Report, ...] | Failure:
    """The launches of a case on a target, compiled in a process of their own."""
    command = [sys.executable, "-m", __name__, msgspec.json.encode(case).decode(), target]
    # Triton's kernels are compiled here, never interpreted
    clean = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with tempfile.TemporaryDirectory() as cache:
        environment = {**clean, "TRITON_CACHE_DIR": cache}
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                errors="replace",
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Failure(target=target, reason=f"did not compile in {timeout_s:g} s")
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return Failure(target=target, reason=lines[-1][-300:] if lines else "no message")
    return tuple(
        msgspec.json.decode(line, type=Report)
        for line in done.stdout.splitlines()
        if line.startswith("{")
    )


def compile_case(case: CompileCase, target: str) -> list[Report]:
    """The reports of a case's launches, compiled in this process."""
    return [compile_launch(launch, target) for launch in case_launches(case, target)]


def case_launches(case: CompileCase, target: str) -> list[Any]:
    """The launches that a batch of this case would get on the target, on tensors without memory."""
    import torch

    from attnctl.kernels.triton.cache import cache_launch
    from attnctl.kernels.triton.call import launches, shape_of
    from attnctl.kernels.triton.launch import Device, knobs_for, plan
    from attnctl.ops.paged import Paged

    dtypes = {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "e4m3": torch.float8_e4m3fn,
        "e5m2": torch.float8_e5m2,
        "int8": torch.int8,
    }

    def tensor(*sizes: int, dtype: Any) -> Any:
        return torch.empty(sizes, dtype=dtype, device="meta")

    dtype, stored = dtypes[case.dtype], dtypes[case.cache or case.dtype]
    value_width = case.value_width or case.width
    per_token = stored == torch.int8
    scale: Any = tensor(64, case.page, case.kv_heads, dtype=torch.float32) if per_token else 0.5
    keys = tensor(64, case.page, case.kv_heads, case.width, dtype=stored)
    values = tensor(64, case.page, case.kv_heads, value_width, dtype=stored)
    queries = 4096 if case.kernel == "prefill" else 1
    tokens = 8 * queries
    if case.kernel == "cache":
        key = tensor(tokens, case.kv_heads, case.width, dtype=dtype)
        value = tensor(tokens, case.kv_heads, value_width, dtype=dtype)
        slots = tensor(tokens, dtype=torch.int64)
        return [cache_launch(key, value, keys, values, slots, scale, scale)]
    query = tensor(tokens, case.heads, case.width, dtype=dtype)
    out = tensor(tokens, case.heads, value_width, dtype=dtype)
    lengths = tensor(8, dtype=torch.int32)
    table = tensor(8, 512, dtype=torch.int32)
    starts = tensor(9, dtype=torch.int32)
    params = Paged(
        scale=case.width**-0.5,
        window=case.window,
        softcap=case.softcap,
        sinks=tensor(case.heads, dtype=torch.float32) if case.sinks else None,
        k_scale=scale if stored != dtype else 1.0,
        v_scale=scale if stored != dtype else 1.0,
    )
    shape = shape_of(query, keys, values, lengths, queries, 8192)
    device = Device(target, 132, shared_limit(target))
    chosen = plan(shape, device, knobs_for(target))
    return launches((query, keys, values, out, table, starts, lengths), params, shape, chosen)


def shared_limit(target: str) -> int:
    """Bytes of shared memory of one block. InputError for an arch that is not known."""
    if target not in SHARED_MEMORY:
        raise InputError(f"no such target: {target}; known are {', '.join(SHARED_MEMORY)}")
    return SHARED_MEMORY[target]


def compile_launch(launch: Any, target: str) -> Report:
    """One launch compiled for the target, with the specialisations that a real launch gets."""
    import time

    import triton

    kernel, _, arguments, constants = launch
    options = {k: v for k, v in constants.items() if k in ("num_warps", "num_stages")}
    values = dict(zip(kernel.arg_names, arguments, strict=False))
    values.update({k: v for k, v in constants.items() if k not in options})
    signature, fixed, attributes = {}, {}, {}
    for index, (name, value) in enumerate(values.items()):
        kind, aligned = argument_type(value, constant=name in constants)
        signature[name] = kind
        if kind == "constexpr":
            fixed[name] = value
        if aligned:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = _source(kernel, signature, fixed, attributes)
    start = time.perf_counter()
    compiled = triton.compile(source, target=gpu_target(target), options=options)
    seconds = time.perf_counter() - start
    registers, spills = resources(compiled, target)
    text = compiled.asm["amdgcn" if target.startswith("gfx") else "ptx"]
    return Report(
        kernel=kernel.__name__,
        target=target,
        shared_bytes=compiled.metadata.shared,
        shared_limit_bytes=shared_limit(target),
        registers=registers,
        spills=spills,
        matrix=tuple(sorted({found[0] for found in MATRIX.finditer(text)})),
        seconds=round(seconds, 2),
    )


def _source(kernel: Any, signature: Any, fixed: Any, attributes: Any) -> Any:
    kinds = {"fn": kernel, "signature": signature, "constexprs": fixed, "attrs": attributes}
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource(**kinds)
    from triton.compiler import ASTSource

    return ASTSource(**kinds)


def argument_type(value: Any, *, constant: bool) -> tuple[str, bool]:
    """Triton's name of an argument's type, and whether a launch would note that 16 divides it."""
    import torch

    names = {
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float32: "fp32",
        torch.float8_e4m3fn: "fp8e4nv",
        torch.float8_e5m2: "fp8e5",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.int32: "i32",
        torch.int64: "i64",
    }
    if constant or value is None or (isinstance(value, int) and value == 1):
        return "constexpr", False
    if isinstance(value, torch.Tensor):
        return f"*{names[value.dtype]}", True
    if isinstance(value, int):
        return ("i32" if abs(value) < 2**31 else "i64"), value % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    box = ",".join(map(str, value.block_shape))
    return f"tensordesc<{names[value.base.dtype]}[{box}]>", False


def gpu_target(target: str) -> Any:
    """Triton's target of an arch: 64-wide waves on CDNA, 32 elsewhere."""
    from triton.backends.compiler import GPUTarget

    if target.startswith("gfx"):
        return GPUTarget("hip", target, 64 if target.startswith("gfx9") else 32)
    return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)


def resources(compiled: Any, target: str) -> tuple[int, int]:
    """Registers a thread, and what it spills: bytes stored (NVIDIA), registers (AMD)."""
    if target.startswith("gfx"):
        text = compiled.asm["amdgcn"]
        found = {
            name: int(value)
            for name, value in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", text)
        }
        return found.get("vgpr_count", 0), found.get("vgpr_spill_count", 0)
    from triton.backends.nvidia.compiler import get_ptxas

    ptx = compiled.asm["ptx"]
    arch = re.search(r"\.target (\S+?)[,\s]", ptx)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [
            get_ptxas(int(target.removeprefix("sm_"))).path,
            "-v",
            f"--gpu-name={arch[1] if arch else target}",
            "-o",
            os.devnull,
            str(source),
        ]
        log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    used = re.search(r"Used (\d+) registers", log)
    spilled = re.search(r"(\d+) bytes spill stores", log)
    return int(used[1]) if used else 0, int(spilled[1]) if spilled else 0


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=CompileCase)
    for report in compile_case(case, sys.argv[2]):
        print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
