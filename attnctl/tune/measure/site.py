"""What a child finds of its device: limits, versions, and the ceilings that it measures."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec
import torch

from attnctl.tune.exchange import Site
from attnctl.tune.measure.timing import host_clock

LARGE_BYTES = 1 << 30


def site_of(device: torch.device) -> Site:
    """The facts of this device, with its ceilings; takes a second."""
    if device.type == "cuda":
        return _gpu(device)
    if os.environ.get("TRITON_INTERPRET") == "1":
        return _interpreter(device)
    return _processor()


def _interpreter(device: torch.device) -> Site:
    """Triton's interpreter in place of a GPU: for tests of the kernels' knobs."""
    from attnctl.kernels.triton.device_facts import device_of

    limits = device_of(device)
    return msgspec.structs.replace(
        _processor(),
        arch=limits.arch,
        units=limits.units,
        shared_memory_bytes=limits.shared_memory_bytes,
        cache_bytes=1,
    )


def _version(name: str) -> str | None:
    try:
        return str(import_module(name).__version__)
    except ImportError:
        return None


def _gpu(device: torch.device) -> Site:
    from attnctl.kernels.triton.device_facts import device_of

    facts = torch.cuda.get_device_properties(device)
    limits = device_of(device)
    read = _read_rate(LARGE_BYTES, device)
    matrix = _matrix_rate(8192, torch.bfloat16, device)
    torch.cuda.empty_cache()
    return Site(
        torch=str(torch.__version__),
        triton=_version("triton"),
        arch=limits.arch,
        units=limits.units,
        shared_memory_bytes=limits.shared_memory_bytes,
        memory_bytes=torch.cuda.mem_get_info(device)[0],
        cache_bytes=int(getattr(facts, "L2_cache_size", 0)) or 1 << 26,
        read_gbps=round(read / 1e9, 1),
        matrix_gflops=round(matrix / 1e9, 1),
        conditions=_clocks(),
    )


def _clocks() -> dict[str, int | float | str | bool]:
    """What the driver says of the clocks under load; empty where it is not there to be asked."""
    fields = ("clocks.sm", "clocks.mem", "power.limit")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        numbers = [float(word) for word in found.stdout.splitlines()[0].split(",")]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    names = ("clock_mhz", "memory_clock_mhz", "power_limit_w")
    return dict(zip(names, numbers, strict=True))


def _processor() -> Site:
    import psutil

    device = torch.device("cpu")
    read = _read_rate(1 << 26, device)
    matrix = _matrix_rate(1024, torch.float32, device)
    threads = torch.get_num_threads()
    frequency = psutil.cpu_freq()
    clock = {"clock_mhz": round(frequency.current)} if frequency else {}
    return Site(
        torch=str(torch.__version__),
        triton=_version("triton"),
        arch="cpu",
        units=threads,
        threads=threads,
        memory_bytes=psutil.virtual_memory().available,
        cache_bytes=_last_cache_bytes(),
        read_gbps=round(read / 1e9, 1),
        matrix_gflops=round(matrix / 1e9, 1),
        conditions={"clock": host_clock(), **clock},
    )


def _read_rate(size: int, device: torch.device) -> float:
    """Bytes a second that a reduction over this many of them reads."""
    source = torch.zeros(size // 4, dtype=torch.int32, device=device)
    return size / _best(source.amax, device)


def _matrix_rate(width: int, dtype: torch.dtype, device: torch.device) -> float:
    """Operations a second of a square product."""
    one = torch.randn(width, width, device=device).to(dtype)
    return float(2 * width**3 / _best(lambda: one @ one, device))


def _last_cache_bytes() -> int:
    """The size of the last-level cache, a usual one where the C library does not know."""
    for level in ("SC_LEVEL4_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        try:
            size = os.sysconf(level)
        except (OSError, ValueError):
            continue
        if size > 0:
            return size
    return 1 << 25


def _best(call: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest of five runs."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times = []
    for _ in range(6):
        wait()
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return min(times[1:])
