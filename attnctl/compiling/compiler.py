"""One launch compiled for a target by Triton's own compiler, which needs no such device."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.compiling.report import Launched
from attnctl.compiling.targets import gpu_of
from attnctl.kernels.triton.launch import Launch
from attnctl.machine import Gpu, Machine

_MATRIX = re.compile(
    r"\b(wgmma\.mma_async|tcgen05\.mma|mma\.sync)\S*|\b(v_mfma|v_wmma|v_smfmac)\w*"
)
# in Triton's own IR: a product, the type of its first operand, and the precision asked for
_PRODUCT = re.compile(
    r"(?:tt\.dot(?:_scaled)?|ttng\.warp_group_dot|ttng\.tc_gen5_mma) "
    r".*?: (?:tensor|!ttg\.memdesc)<[\dx]+x(\w+)"
)
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_REGISTER_BYTES = 4


class Compiler:
    """Compiles launches for a machine's GPU; equal launches once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._gpu = gpu_of(machine)
        self._target = gpu_target(self._gpu)
        self._done: dict[str, Launched] = {}

    def compile(self, launch: Launch) -> Launched:
        """What the launch becomes. Raises what Triton raises where it does not compile."""
        source = source_of(launch)
        if source.key not in self._done:
            self._done[source.key] = self._compile(launch, source)
        return self._done[source.key]

    def _compile(self, launch: Launch, source: Source) -> Launched:
        import triton

        tree = _tree(launch.kernel, source)
        start = time.perf_counter()
        with _assembler_log() as log:
            compiled = triton.compile(tree, target=self._target, options=source.options)
        seconds = time.perf_counter() - start
        amd = "amdgcn" in compiled.asm
        text = compiled.asm["amdgcn" if amd else "ptx"]
        registers, spills = _amd_registers(text) if amd else _registers(text, log, self._gpu)
        return Launched(
            kernel=launch.kernel.__name__,
            variant=source.variant,
            shared_bytes=compiled.metadata.shared,
            shared_limit_bytes=self._gpu.shared_memory_bytes or 0,
            registers=registers,
            spills_bytes=spills,
            # Gluon starts at the second of Triton's representations
            products=products(compiled.asm.get("ttir") or compiled.asm["ttgir"]),
            matrix=tuple(sorted({found[0] for found in _MATRIX.finditer(text)})),
            seconds=round(seconds, 2),
        )


class Source(NamedTuple):
    """A launch as the compiler takes it. attributes: (argument,) -> what is known of its value."""

    signature: dict[str, str]
    constants: dict[str, Any]
    attributes: dict[tuple[int, ...], list[list[Any]]]
    options: dict[str, Any]
    variant: str
    key: str


def _tree(kernel: Any, source: Source) -> Any:
    """The kernel's code with its types, in the language that it is written in."""
    parts = {
        "fn": kernel,
        "signature": source.signature,
        "constexprs": source.constants,
        "attrs": source.attributes,
    }
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource(**parts)
    from triton.compiler import ASTSource

    return ASTSource(**parts)


def source_of(launch: Launch) -> Source:
    """The types, constants and alignments that a real launch of the same arguments would have."""
    kernel, _, arguments, named = launch
    given = dict(zip(kernel.arg_names, arguments, strict=False)) | named
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for index, parameter in enumerate(kernel.params):
        name = parameter.name
        value = given.get(name, parameter.default)
        kind, aligned = argument_type(value, constant=parameter.is_constexpr)
        signature[name] = kind
        if kind == "constexpr":
            constants[name] = value
        if aligned:
            attributes[(index,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in named.items() if name not in kernel.arg_names}
    shown = {p.name: given.get(p.name) for p in kernel.params if p.is_constexpr} | options
    variant = ",".join(f"{name}={value}" for name, value in shown.items())
    key = repr((kernel.__module__, kernel.__name__, signature, constants, attributes, options))
    return Source(signature, constants, attributes, options, variant, key)


def argument_type(value: Any, *, constant: bool) -> tuple[str, bool]:
    """Triton's name of an argument's type, and whether a launch would note that 16 divides it."""
    import torch

    names = {
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float32: "fp32",
        torch.float8_e4m3fn: "fp8e4nv",
        torch.float8_e5m2: "fp8e5",
        torch.bool: "i1",
        torch.int8: "i8",
        torch.uint8: "u8",
        torch.int32: "i32",
        torch.int64: "i64",
    }
    if constant or value is None:
        return "constexpr", False
    if isinstance(value, torch.Tensor):
        return f"*{names[value.dtype]}", True
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, int):
        if value == 1:
            return "constexpr", False
        return ("i32" if abs(value) < 2**31 else "i64"), value % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    box = ",".join(map(str, value.block_shape))
    # Gluon's boxes name the layout that they are unpacked to
    layout = f",{value.layout!r}" if hasattr(value, "layout") else ""
    return f"tensordesc<{names[value.base.dtype]}[{box}]{layout}>", False


def gpu_target(gpu: Gpu) -> Any:
    """Triton's target of a GPU: 64-wide waves on CDNA, 32 elsewhere."""
    from triton.backends.compiler import GPUTarget

    arch = gpu.arch or ""
    if arch.startswith("gfx"):
        return GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32)
    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


def products(ttir: str) -> tuple[str, ...]:
    """Operand types of the products in Triton's IR, exact float32 ones left out."""
    found = set()
    for product in _PRODUCT.finditer(ttir):
        precision = _PRECISION.search(product[0])
        if product[1] != "f32" or precision is not None:
            found.add(product[1])
    return tuple(sorted(found))


@contextlib.contextmanager
def _assembler_log() -> Any:
    """What ptxas says of registers and spills, where the compile is not one of Triton's cache."""
    import triton

    before, log = triton.knobs.nvidia.dump_ptxas_log, io.StringIO()
    triton.knobs.nvidia.dump_ptxas_log = True
    try:
        with contextlib.redirect_stdout(log):
            yield log
    finally:
        triton.knobs.nvidia.dump_ptxas_log = before


def _registers(ptx: str, log: io.StringIO, gpu: Gpu) -> tuple[int, int]:
    """Registers a thread and the bytes that it stores, as ptxas tells them."""
    text = log.getvalue()
    if "Used " not in text:
        text = _assembled_again(ptx, gpu)
    used = re.search(r"Used (\d+) registers", text)
    spilled = re.search(r"(\d+) bytes spill stores", text)
    return int(used[1]) if used else 0, int(spilled[1]) if spilled else 0


def _assembled_again(ptx: str, gpu: Gpu) -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    arch = re.search(r"\.target (\S+?)[,\s]", ptx)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [
            get_ptxas(int((gpu.arch or "").removeprefix("sm_"))).path,
            "-v",
            f"--gpu-name={arch[1] if arch else gpu.arch}",
            "-o",
            os.devnull,
            str(source),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _amd_registers(text: str) -> tuple[int, int]:
    """Vector registers a thread and the bytes that it stores, from the code object's notes."""
    found = {
        name: int(value)
        for name, value in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s+(\d+)", text)
    }
    return found.get("vgpr_count", 0), _REGISTER_BYTES * found.get("vgpr_spill_count", 0)
