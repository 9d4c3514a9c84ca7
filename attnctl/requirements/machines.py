"""Rules that look at the machine: its platform, device, packages and compilers."""

from __future__ import annotations

from attnctl.findings import Finding, Verdict, met, unknown, unmet
from attnctl.requirements.rule import Rule, Subject

NAMES = {"cuda": "NVIDIA (CUDA)", "rocm": "AMD (ROCm)", "xpu": "Intel (XPU)", "cpu": "a CPU"}

# PyPI names where they differ from the key: what a user would install
INSTALL = {
    "flash_attn": "pip install flash-attn",
    "flash_attn_3": "build flash-attention/hopper (module flash_attn_interface)",
    "flash_attn_4": "pip install flash-attn-4",
    "flashinfer": "pip install flashinfer-python",
    "flashinfer_cubin": "pip install flashinfer-cubin",
    "flash_mla": "build FlashMLA (deepseek-ai/FlashMLA)",
    "aiter": "build AITER (ROCm/aiter) for this ROCm",
    "torch": "pip install 'attnctl[kernels]', or attnctl in the environment of your engine",
    "triton": "pip install triton",
    "vllm_xpu_kernels": "install vLLM's XPU build",
}


def platform(*platforms: str) -> Rule:
    """The device is of one of these platforms."""
    wanted = " or ".join(NAMES[name] for name in platforms)

    def check(subject: Subject) -> Finding:
        found = NAMES[subject.platform]
        return (met if subject.platform in platforms else unmet)(
            "platform", wanted, found, subject.source("platform")
        )

    return Rule("platform", "machine", check)


def capability(
    at_least: tuple[int, int] | None = None,
    at_most: tuple[int, int] | None = None,
    majors: tuple[int, ...] = (),
    why: str = "",
) -> Rule:
    """On NVIDIA, the compute capability is in a range or of one of these majors."""
    wanted = _capability_text(at_least, at_most, majors) + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "cuda" or subject.gpu is None:
            return None
        cc, source = subject.gpu.capability, subject.source("capability")
        if cc is None:
            return unknown("compute_capability", wanted, "not known", source, "attnctl probe")
        good = (
            (at_least is None or cc >= at_least)
            and (at_most is None or cc <= at_most)
            and (not majors or cc[0] in majors)
        )
        found = f"{cc[0]}.{cc[1]}" + ("" if good else _direction(cc, at_least, at_most))
        return (met if good else unmet)("compute_capability", wanted, found, source)

    return Rule("compute_capability", "machine", check)


def _capability_text(
    at_least: tuple[int, int] | None, at_most: tuple[int, int] | None, majors: tuple[int, ...]
) -> str:
    if majors:
        return "compute capability " + " or ".join(f"{major}.x" for major in majors)
    if at_least and at_most:
        return "compute capability {}.{} to {}.{}".format(*at_least, *at_most)
    if at_least:
        return "compute capability {}.{} or newer".format(*at_least)
    return "compute capability {}.{} or older".format(*(at_most or (0, 0)))


def _direction(
    cc: tuple[int, int], at_least: tuple[int, int] | None, at_most: tuple[int, int] | None
) -> str:
    if at_least and cc < at_least:
        return ", too old"
    return ", too new" if at_most and cc > at_most else ""


def gfx(*archs: str, why: str = "") -> Rule:
    """On AMD, the architecture is one of these (prefixes: "gfx94" takes gfx940 to gfx942)."""
    wanted = " or ".join(archs) + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "rocm" or subject.gpu is None:
            return None
        arch, source = subject.gpu.arch, subject.source("arch")
        if arch is None:
            return unknown("arch", wanted, "not known", source, "attnctl probe")
        return (met if arch.startswith(archs) else unmet)("arch", wanted, arch, source)

    return Rule("arch", "machine", check)


def isa(*features: str, why: str = "") -> Rule:
    """On a CPU, one of these instruction sets is usable."""
    wanted = " or ".join(features) + (f" ({why})" if why else "")

    def check(subject: Subject) -> Finding | None:
        if subject.platform != "cpu":
            return None
        cpu, source = subject.machine.cpu, subject.source("isa")
        usable = [feature for feature in features if feature in cpu.isa]
        if usable:
            return met("isa", wanted, ", ".join(usable), source)
        blocked = [
            f"{name}: {cpu.isa_unusable[name]}" for name in features if name in cpu.isa_unusable
        ]
        if not cpu.isa and not blocked:
            return unknown("isa", wanted, "not known", source, "attnctl probe")
        return unmet("isa", wanted, "; ".join(blocked) or "none of them", source)

    return Rule("isa", "machine", check)


def package(*names: str, platforms: tuple[str, ...] = (), code: str = "package_missing") -> Rule:
    """One of these packages is installed and nothing shows that it cannot run here."""
    wanted = " or ".join(names)
    install = INSTALL.get(names[0], f"pip install {names[0].replace('_', '-')}")

    def check(subject: Subject) -> Finding | None:
        if platforms and subject.platform not in platforms:
            return None
        packages = subject.machine.packages
        seen = [(name, packages[name]) for name in names if name in packages]
        for name, found in seen:
            if found.status in ("ok", "assumed") and found.usable is not False:
                return met(code, wanted, f"{name} {found.version or ''}".strip(), found.source)
        for name, found in seen:
            if found.usable is False:
                return unmet(code, wanted, f"{name}, but {found.reason}", found.source, install)
        for name, found in seen:
            if found.status in ("unknown", "timeout"):
                return unknown(code, wanted, f"{name}: {found.reason}", found.source, install)
        if not packages:
            return unknown(code, wanted, "packages not probed", "", "--assume-installed all")
        source = seen[0][1].source if seen else "packages"
        return unmet(code, wanted, "not installed", source, install)

    return Rule(code, "machine", check, names)


def triton() -> list[Rule]:
    """Triton and torch are installed, and Triton can build for this device."""
    return [
        package("torch"),
        package("triton", platforms=("cuda", "rocm", "xpu")),
        # cross-compiled for sm_70 and sm_75 with Triton 3.7.1: scalar products, no matrix units
        capability(at_least=(7, 0), why="Triton"),
    ]


def device_dtype() -> Rule:
    """The device computes in the layer's dtype: bfloat16 needs compute capability 8.0."""

    def check(subject: Subject) -> Finding | None:
        gpu, layer = subject.gpu, subject.layer
        if subject.platform != "cuda" or gpu is None or gpu.capability is None:
            return None
        if layer.dtype != "bfloat16" or gpu.capability >= (8, 0):
            return None
        found = "compute capability {}.{}".format(*gpu.capability)
        wanted = "compute capability 8.0 or newer for bfloat16"
        return unmet("device_dtype", wanted, found, subject.source("capability"), "--dtype float16")

    return Rule("device_dtype", "both", check)


E4M3 = ("fp8", "fp8_e4m3", "fp8_per_token_head", "fp8_ds_mla")


def fp8_hardware() -> Rule:
    """The device converts the cache's FP8 format: e4m3 from 8.9, e5m2 from 8.0 (Triton 3.7.1).

    Triton refuses fp8e4nv below 8.9 by name. fp8e5 loads were cross-compiled for sm_80 and sm_86
    (tests/requirements holds the check); smoke proves them on the device.
    """

    def check(subject: Subject) -> Finding | None:
        gpu, kv_dtype = subject.gpu, subject.layer.kv_cache_dtype
        if gpu is None or not kv_dtype.startswith("fp8") or not subject.layer.group.needs_kv_cache:
            return None
        if subject.platform == "rocm":
            return _fp8_rocm(subject, kv_dtype)
        if subject.platform != "cuda" or gpu.capability is None:
            return None
        least, name = ((8, 9), "e4m3") if kv_dtype in E4M3 else ((8, 0), "e5m2")
        wanted = "compute capability {}.{} or newer for {}".format(*least, name)
        found = "{}.{}".format(*gpu.capability)
        source = subject.source("capability")
        if gpu.capability >= least:
            shown = found if name == "e4m3" else f"{found} (by cross-compilation; smoke proves it)"
            return met("fp8_hardware", wanted, shown, source)
        fix = "--kv-cache-dtype fp8_e5m2" if gpu.capability >= (8, 0) else "--kv-cache-dtype auto"
        return unmet("fp8_hardware", wanted, found, source, fix)

    return Rule("fp8_hardware", "both", check)


def _fp8_rocm(subject: Subject, kv_dtype: str) -> Finding | None:
    arch = subject.gpu.arch if subject.gpu else None
    if arch is None:
        return None
    wanted = f"gfx94x, gfx95x or gfx12xx for {kv_dtype}"
    good = arch.startswith(("gfx94", "gfx95", "gfx12"))
    fix = "" if good else "--kv-cache-dtype auto"
    source = subject.source("arch")
    return Finding("fp8_hardware", _verdict(good), wanted, arch, source, fix)


def _verdict(good: bool) -> Verdict:
    return Verdict.MET if good else Verdict.UNMET


def shared_memory(tile: int = 16, stages: int = 1) -> Rule:
    """The smallest tile of the kernel fits a block's shared memory.

    One query tile [16, D] and `stages` tiles of K [tile, D] and V [tile, Dv], in the compute dtype,
    all three padded to powers of two as Triton's tiles are.
    """

    def check(subject: Subject) -> Finding | None:
        gpu, layer = subject.gpu, subject.layer
        if gpu is None or layer.head_size is None:
            return None
        need = smallest_tile_bytes(layer.head_size, layer.head_size_v, layer.dtype, tile, stages)
        wanted = f"{need} bytes of shared memory per block for the smallest tile"
        source = subject.source("shared_memory_bytes")
        have = gpu.shared_memory_bytes
        if have is None:
            return unknown("shared_memory", wanted, "not known", source, "attnctl probe")
        return (met if have >= need else unmet)("shared_memory", wanted, f"{have} bytes", source)

    return Rule("shared_memory", "both", check)


def smallest_tile_bytes(
    head_size: int, head_size_v: int | None, dtype: str, tile: int, stages: int
) -> int:
    itemsize = 4 if dtype == "float32" else 2
    width = _power_of_two(head_size)
    width_v = _power_of_two(head_size_v or head_size)
    return itemsize * (16 * width + stages * tile * (width + width_v))


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
