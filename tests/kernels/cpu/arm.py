"""Runs the processor's C++ kernels as 64-bit ARM code, in an emulator, on smoke's cases.

python -m tests.kernels.cpu.arm [BACKEND ...]: exit status 0 where no case is wrong.
Needs aarch64-linux-gnu-g++ and qemu-aarch64 (Debian: g++-aarch64-linux-gnu, qemu-user); no test by
name, as those are rarely there. It says what NEON computes, not how fast.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnctl.findings import met
from attnctl.kernels.cpu import build, build_tiles
from attnctl.ops.case import split_case
from attnctl.ops.catalog import case_of, try_case
from attnctl.runtime import open_backend

ROOT = "/usr/aarch64-linux-gnu"
COMPILE = (
    "aarch64-linux-gnu-g++ -x c++ -std=c++17 -O3 -ffp-contract=fast -fno-exceptions -fno-rtti "
    "-fno-math-errno -w -mcpu=neoverse-n1 -fopenmp -static -Wl,--no-warnings"
)
SERVER = Path(__file__).with_name("arm_server.cpp")
LARGEST = 64 << 20
"""Bytes of memory of a call beyond which a case is left out: it is copied there and back."""
BACKENDS = (
    *("CPU_ATTN", "CPU_MLA", "CPU_MLA_SPARSE", "GDN_ATTN", "SHORT_CONV_ATTN", "LINEAR_ATTN"),
    *("MAMBA1_ATTN", "MAMBA2_ATTN"),
)

called: Counter[str] = Counter()
"""How often each function ran in the emulator."""

touched: dict[int, Tensor] = {}
"""The tensors whose addresses were asked for since the last call, by address of their storage."""


class TooLargeError(Exception):
    """A call of more memory than is copied."""


def data_ptr(tensor: Tensor, whole: Any = Tensor.data_ptr) -> int:
    """The address, remembered for the next call."""
    touched[tensor.untyped_storage().data_ptr()] = tensor
    return int(whole(tensor))


class Emulated:
    """A kernel source that runs in the emulator, in place of a shared object."""

    def __init__(self, path: str) -> None:
        self._line = ["qemu-aarch64", "-L", ROOT, path]
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __getattr__(self, name: str) -> Any:
        return Function(self, name)

    def call(self, name: str, block: bytes) -> int:
        if self._process.poll() is not None:
            self._process = self._started()
        storages = [one.untyped_storage() for one in touched.values()]
        if sum(one.nbytes() for one in storages) > LARGEST:
            raise TooLargeError
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        head = struct.pack("64s2Q", name.encode(), len(block), len(storages))
        stdin.write(head + block)
        for one in storages:
            stdin.write(struct.pack("2Q", one.data_ptr(), one.nbytes()))
            stdin.write(ctypes.string_at(one.data_ptr(), one.nbytes()))
        stdin.flush()
        answer = stdout.read(8)
        if len(answer) != 8:
            raise RuntimeError(f"{name}: the emulator ended with {self._process.wait()}")
        for one in storages:
            ctypes.memmove(one.data_ptr(), stdout.read(one.nbytes()), one.nbytes())
        touched.clear()
        called[name] += 1
        return int(struct.unpack("q", answer)[0])


class Function:
    """One function of it, called with a block of arguments, or with what one is made of."""

    def __init__(self, library: Emulated, name: str) -> None:
        self._library, self._name = library, name
        self.argtypes: list[Any] = []
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        if self._name == "attnctl_pick":
            logits, rows, columns, topk, picks = arguments
            block = struct.pack("2P3q", logits, picks, rows, columns, topk)
            return self._library.call("served_pick", block)
        (block,) = arguments
        return self._library.call(self._name, block)


def built(folder: Path, source: Path) -> build.Built:
    """The server of one source."""
    text = source.read_text()
    names = dict.fromkeys(re.findall(r"^(?:i64|void) (attnctl_\w+)\(const [A-Z]", text, re.M))
    extra = ""
    if "attnctl_pick" in text:
        names["served_pick"] = None
        extra = (
            'extern "C" void served_pick(const void* p) { auto w = (const i64*)p; attnctl_pick('
            "(const float*)w[0], w[2], w[3], w[4], (i32*)w[1]); }\n"
        )
    whole = folder / f"{source.stem}.cpp"
    whole.write_text(f'#include "{source}"\n{extra}')
    listed = " ".join(f"do({name})" for name in names)
    target = folder / source.stem
    line = [*COMPILE.split(), f"-I{source.parent}", f"-DFUNCTIONS(do)={listed}"]
    subprocess.run([*line, "-o", str(target), str(whole), str(SERVER)], check=True)
    return build.Built(str(target), met(build.CODE, build.WANTED, "emulated", str(target)))


def main(backends: list[str]) -> int:
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        made: dict[Path, build.Built] = {}

        def build_here(host: object, source: Path) -> build.Built:
            if source not in made:
                made[source] = built(Path(name), source)
            return made[source]

        build.build_here = build_here
        build_tiles.build_tiles = build_here
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("attnctl.kernels.cpu"):
                vars(module).update(build_here=build_here)
        ctypes.CDLL = Emulated
        Tensor.data_ptr = data_ptr
        torch.set_num_threads(2)
        for backend in backends or BACKENDS:
            bad += tried(backend)
    return 1 if bad else 0


def cases_of(backend: str) -> list[str]:
    """The cases that smoke would run on the processor."""
    line = [sys.executable, "-m", "attnctl", "smoke", "--list", "--json", "--device", "cpu"]
    said = subprocess.run([*line, "--backend", backend], capture_output=True, check=True)
    return [case for one in json.loads(said.stdout) for case in one["runnable"]]


def tried(backend: str) -> int:
    """How many cases are wrong; all of them where nothing ran in the emulator."""
    runtime, counts = open_backend(backend), Counter[str]()
    called.clear()
    for text in cases_of(backend):
        verdict, detail = verdict_of(runtime, text)
        counts[verdict] += 1
        if verdict not in FINE:
            print(f"{backend} {text}: {verdict} {detail}", flush=True)
    said = ", ".join(f"{n} {what}" for part in (counts, called) for what, n in part.items())
    print(f"{backend}: {said}", flush=True)
    return sum(n for what, n in counts.items() if what not in FINE or not called)


FINE = ("pass", "too large")


def verdict_of(runtime: Any, text: str) -> tuple[str, str]:
    try:
        found = try_case(runtime, case_of(*split_case(text)), "cpu")
    except TooLargeError:
        return "too large", ""
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    finally:
        touched.clear()
    return found.verdict, found.detail


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
