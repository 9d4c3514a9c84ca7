"""The build of a source that has loops for AMX's tiles, with the compiler's flags for them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from attnctl.kernels.cpu.build import Built, build, compiler_environ, isa_flags
from attnctl.kernels.cpu.build_compilers import compilers
from attnctl.probe.host import Host

_TILES = {"amx_tile": "-mamx-tile", "amx_bf16": "-mamx-bf16", "avx512_bf16": "-mavx512bf16"}


def build_tiles(host: Host, source: Path) -> Built:
    """The shared object of `source` for this machine's usable instructions, tiles among them."""
    from attnctl.probe.cpu import probe_cpu
    from attnctl.probe.ledger import Ledger

    cpu = probe_cpu(host, Ledger())
    environ = compiler_environ(host)
    flags = isa_flags(cpu.arch, cpu.isa)
    flags += known(tile_flags(cpu.isa, flags), environ)
    return build(source, flags, environ, f"{cpu.arch} {cpu.model} {cpu.isa}")


def tile_flags(isa: Iterable[str], flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags for tiles, beside `flags`, where the probe found all that the loops need."""
    whole = frozenset(isa).issuperset(_TILES) and "-mavx512dq" in flags
    return tuple(_TILES.values()) if whole else ()


def known(flags: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    """These flags where the first compiler knows them all, else none: older ones have no AMX."""
    command = next(iter(compilers(environ)), ())
    if not flags or not command:
        return ()
    line = [*command, *flags, "-x", "c++", "-fsyntax-only", "/dev/null"]
    try:
        ended = subprocess.run(line, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return () if ended.returncode else flags
