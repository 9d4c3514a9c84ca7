"""What Triton needs beside itself: a C compiler, Python's headers, a ptxas that knows the GPU."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding, met, unknown, unmet
from attnctl.machine import Gpu
from attnctl.probe.host import Host, HostError, access, child, env, exists, names_in, table
from attnctl.probe.ledger import Ledger

# first CUDA release whose ptxas takes a target: release notes of the PTX ISA, "Target ISA"
FIRST_PTXAS = {
    75: (10, 0),
    80: (11, 0),
    86: (11, 1),
    87: (11, 4),
    89: (11, 8),
    90: (11, 8),
    100: (12, 8),
    101: (12, 8),
    103: (12, 9),
    110: (13, 0),
    120: (12, 8),
    121: (12, 9),
}
# where Triton ships a second ptxas, it takes that one from this target on
BLACKWELL = 100


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that Triton would take.

    cc: path of the C compiler, "" for none. python_headers: whether Python.h is there. Both are
    None where nobody could look. ptxas: version ("12.8") of the assembler at ptxas_path, None
    where not asked. ptxas_variable: what points Triton elsewhere. cache_warm: whether Triton has
    compiled something here before.
    """

    cc: str | None = None
    python_headers: bool | None = None
    ptxas: str | None = None
    ptxas_path: str | None = None
    ptxas_variable: str = "TRITON_PTXAS_PATH"
    ptxas_problem: str = ""
    cache_warm: bool = False
    cuda_home: str | None = None


def probe_toolchain(
    host: Host, ledger: Ledger, triton: str | None, gpus: tuple[Gpu, ...]
) -> Toolchain:
    """The tools as Triton would find them. triton: the folder of the package, None if absent."""
    tools = Toolchain(
        cc=_cc(host, ledger),
        python_headers=_headers(host, ledger),
        cuda_home=ledger.take(
            "os.cuda_home", "CUDA_HOME, CUDA_PATH, /usr/local/cuda", lambda: _cuda_home(host)
        ),
        cache_warm=_cache_warm(host) if gpus else False,
    )
    target = max((number for gpu in gpus if (number := sm_number(gpu)) is not None), default=None)
    if triton is None or target is None:
        return tools
    return _with_ptxas(host, tools, triton, target)


def triton_usable(gpu: Gpu, tools: Toolchain) -> tuple[bool | None, tuple[Finding, ...]]:
    """(False where Triton cannot run on this GPU, None where nothing shows that, every finding)."""
    findings = (*_launcher_findings(tools), *_ptxas_findings(gpu, tools))
    broken = any(finding.verdict == "unmet" for finding in findings)
    return (False if broken else None), findings


def sm_number(gpu: Gpu) -> int | None:
    """121 for compute capability 12.1; None for GPUs of other vendors."""
    if gpu.capability is None:
        return None
    major, minor = gpu.capability
    return major * 10 + minor


def _launcher_findings(tools: Toolchain) -> tuple[Finding, ...]:
    """Triton builds a small C launcher per kernel signature, unless its cache has it."""
    code, wanted = "toolchain.launcher", "a C compiler and Python.h, for Triton's launchers"
    missing = [
        name
        for name, absent in (
            ("C compiler", tools.cc == ""),
            ("Python.h", tools.python_headers is False),
        )
        if absent
    ]
    if not missing:
        return (met(code, wanted, tools.cc or ""),)
    found = f"no {' or '.join(missing)}: Triton launcher cannot be built"
    fix = "apt install gcc python3-dev (or point CC at a compiler)"
    if tools.cache_warm:
        found += "; its cache has entries, so kernels that ran here before may still start"
        return (unknown(code, wanted, found, "PATH", fix),)
    return (unmet(code, wanted, found, "PATH", fix),)


def _ptxas_findings(gpu: Gpu, tools: Toolchain) -> tuple[Finding, ...]:
    target = sm_number(gpu)
    needed = FIRST_PTXAS.get(target) if target is not None else None
    if target is None or needed is None or (tools.ptxas is None and not tools.ptxas_problem):
        return ()
    code = "toolchain.ptxas"
    name = f"sm_{target}a" if target >= 90 else f"sm_{target}"
    least = "{}.{}".format(*needed)
    wanted = f"a ptxas that assembles {name}: CUDA >= {least}"
    source = tools.ptxas_path or ""
    fix = f"point {tools.ptxas_variable} at the ptxas of CUDA >= {least}"
    version = _version(tools.ptxas)
    if version is None:
        return (unknown(code, wanted, tools.ptxas_problem or "no version", source, fix),)
    if version >= needed:
        return (met(code, wanted, f"ptxas {tools.ptxas}", source),)
    return (unmet(code, wanted, f"ptxas {tools.ptxas} cannot assemble {name}", source, fix),)


def _version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 5 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _cc(host: Host, ledger: Ledger) -> str | None:
    """Triton's own order: the variable, gcc, clang; plain `cc` is not looked for."""
    path, source = "os.c_compiler", "variable CC, then gcc and clang on PATH"
    try:
        named = env(host, "CC")
        candidates = (named,) if named else ("gcc", "clang")
        found = next(filter(None, (_which(host, name) for name in candidates)), "")
    except HostError as error:
        ledger.failed(path, source, error)
        return None
    ledger.note(path, source, found or None, f"no {named or 'gcc or clang'} on PATH")
    return found


def _which(host: Host, name: str) -> str:
    """The path of a program, "" where it is not on PATH."""
    try:
        found = host.ask("which", name)
    except HostError as error:
        if error.kind == "absent":
            return ""
        raise
    if not isinstance(found, str):
        raise HostError("garbled", f"which {name}: not a path")
    return found


def _headers(host: Host, ledger: Ledger) -> bool | None:
    path = "os.python_headers"
    try:
        header = f"{table(host, 'python').get('include')}/Python.h"
        access(host, header)
    except HostError as error:
        ledger.failed(path, "Python.h", error)
        return False if error.kind == "absent" else None
    ledger.known(path, header)
    return True


def _cuda_home(host: Host) -> str | None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := env(host, name):
            return value
    if exists(host, "/usr/local/cuda"):
        return "/usr/local/cuda"
    raise HostError("absent", "neither variable is set and there is no /usr/local/cuda")


def _cache_warm(host: Host) -> bool:
    try:
        folder = env(host, "TRITON_CACHE_DIR")
        if not folder:
            folder = f"{env(host, 'TRITON_HOME') or env(host, 'HOME') or ''}/.triton/cache"
        return bool(host.ask("filled", folder))
    except HostError:
        return False


def _with_ptxas(host: Host, tools: Toolchain, triton: str, target: int) -> Toolchain:
    """Asks the assembler for its version, in a child, only where it could be too old."""
    folder = f"{triton}/backends/nvidia/bin"
    try:
        names = names_in(host, folder)
    except HostError:
        names = ()
    second = target >= BLACKWELL and "ptxas-blackwell" in names
    variable = "TRITON_PTXAS_BLACKWELL_PATH" if second else "TRITON_PTXAS_PATH"
    try:
        named = env(host, variable)
    except HostError:
        named = None
    if target < BLACKWELL and not named:
        return tools
    path = named or f"{folder}/{'ptxas-blackwell' if second else 'ptxas'}"
    version, problem = None, ""
    try:
        answer = child(host, "ask_ptxas", path)
        version = answer if isinstance(answer, str) else None
        problem = "" if version else "ptxas does not say its version"
    except HostError as error:
        problem = f"ptxas could not be asked: {error.detail}"
    return msgspec.structs.replace(
        tools, ptxas=version, ptxas_path=path, ptxas_variable=variable, ptxas_problem=problem
    )
