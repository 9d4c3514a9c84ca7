"""Finds and loads machines by name (the bundled what-if files) or by path (`probe --save`).

Loading one machine reads one file; listing the names reads none.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from attnctl.arguments import refuse_other
from attnctl.documents.files import MissingFileError, read_bytes
from attnctl.documents.json_text import UNREADABLE, refuse_repeated, unmarked
from attnctl.exits import InputError
from attnctl.machine import SCHEMA, Machine

# other spellings of a bundled machine, squashed as `_squash` does -> its file name
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "a100": "a100-80gb",
        "a10040": "a100-40gb",
        "a10080": "a100-80gb",
        "h100sxm": "h100",
        "h100sxm5": "h100",
        "h200sxm": "h200",
        "dgxspark": "gb10",
        "spark": "gb10",
        "jetsonthor": "thor",
        "jetsonagxthor": "thor",
        "3090": "rtx3090",
        "4090": "rtx4090",
        "5090": "rtx5090",
        "7900xtx": "rx7900xtx",
        "9070xt": "rx9070xt",
        "8060s": "strix-halo",
        "ryzenaimax395": "strix-halo",
        "gpumax1550": "max1550",
        "datacentergpumax1550": "max1550",
        "a770": "arc-a770",
        "b580": "arc-b580",
        "milan": "zen3",
        "genoa": "zen4",
        "turin": "zen5",
        "icelakesp": "icelake",
        "spr": "sapphire-rapids",
        "gracecpu": "grace",
    }
)
# the maker goes before the product line: "NVIDIA GeForce RTX 4090"
_BRANDS = ("nvidia", "amd", "intel", "geforce", "tesla", "radeon", "instinct")
_SUFFIX = ".json"
_MAJOR = int(SCHEMA.rpartition("/")[2])
_FAMILY = SCHEMA.rpartition("/")[0]


class _Header(msgspec.Struct, frozen=True):
    schema: str = SCHEMA


def folder() -> Path:
    """The folder of the bundled machines: in an installed wheel, or beside a checkout's package."""
    package = Path(__file__).parent.parent
    installed = package / "profiles" / "machines"
    return installed if installed.is_dir() else package.parent / "profiles" / "machines"


def names() -> tuple[str, ...]:
    """The names of the bundled machines, sorted."""
    return _names(folder())


def _names(where: Path) -> tuple[str, ...]:
    try:
        found = os.listdir(where)  # noqa: PTH208  (pathlib costs start-up here)
    except OSError:
        return ()
    return tuple(sorted(name[: -len(_SUFFIX)] for name in found if name.endswith(_SUFFIX)))


def these(name: str | None) -> list[Machine]:
    """This machine for None, every bundled one for "all", else the one of that name or file."""
    if name is None:
        from attnctl.probe import probe

        return [probe()]
    return [load(one) for one in (names() if name == "all" else (name,))]


def find(name: str) -> Path | None:
    """The file of a bundled machine, or None.

    Case, spaces, dashes and brands do not count: "NVIDIA H200" and "RTX-4090" are found.
    """
    if _looks_like_path(name):
        return None
    where = folder()
    key = _squash(name)
    known = _names(where)
    target = next((other for other in known if _squash(other) == key), _ALIASES.get(key))
    return where / f"{target}.json" if target in known else None


def load(source: str | os.PathLike[str]) -> Machine:
    """The machine of a bundled name, or of the file at that path; a name goes before a file.

    Where there is neither, the name may be an architecture ("sm_121", "12.1", "gfx1151") or what
    the driver calls a bundled GPU ("NVIDIA H100 80GB HBM3").
    Raises InputError where nothing fits or the file is not a machine that this version can read.
    """
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    refuse_other("machine", source, str, "the name of a bundled one, or a file")
    path = find(source)
    if path is None and not (_looks_like_path(source) or os.path.lexists(source)):
        other = _otherwise_named(source)
        if other is not None:
            return other
    if path is not None:
        return _bundled(path)
    return _decode(_read(Path(source), source), source)


def _otherwise_named(name: str) -> Machine | None:
    """The machine of an architecture, or the bundled one whose GPU bears this name."""
    from attnctl.machines.archs import arch_of, machine_of_arch

    if arch_of(name) is None and not any(character.isdigit() for character in name):
        return None
    where = folder()
    every = [_bundled(where / f"{one}.json") for one in _names(where)]
    key = _squash(name)
    for machine in every:
        if any(_squash(gpu.name or "") == key for gpu in machine.gpus):
            return machine
    return machine_of_arch(name, every)


def _looks_like_path(source: str) -> bool:
    return "/" in source or "\\" in source or source.endswith(".json")


def _squash(name: str) -> str:
    """The letters and digits of a name in lower case, without leading brands."""
    key = "".join(character for character in name.lower() if character.isalnum())
    for brand in _BRANDS:
        key = key.removeprefix(brand)
    return key


def _read(path: Path, source: str) -> bytes:
    if not source:
        raise InputError(_not_found("''"))
    try:
        return read_bytes(path, "machine file")
    except MissingFileError:
        raise InputError(_not_found(source)) from None


def _bundled(path: Path) -> Machine:
    """One of our own files: tests know that it reads, and names nothing twice."""
    data = _read(path, str(path))
    try:
        return msgspec.json.decode(data, type=Machine)
    except UNREADABLE:
        return _decode(data, str(path))  # somebody edited it, and is told what is wrong


def _decode(data: bytes, where: str) -> Machine:
    data = unmarked(data, where)
    try:
        _check_schema(msgspec.json.decode(data, type=_Header).schema, where)
        machine = msgspec.json.decode(data, type=Machine)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), where)) from None
    except UNREADABLE as error:
        reason = str(error).removesuffix(".")
        raise InputError(
            f"{where}: not JSON ({reason}): write a machine file with `attnctl probe --save FILE`"
        ) from None
    refuse_repeated(data, where)
    _refuse_impossible(data, machine, where)
    return machine


def _refuse_impossible(data: bytes, machine: Machine, where: str) -> None:
    """InputError where a number is below 0 or beyond 64 bits; few files look as if one were."""
    if re.search(rb"[0-9]{19}|[:\[,]\s*-[0-9]", data) is None:
        return
    left: list[tuple[str, Any]] = [("", msgspec.to_builtins(machine))]
    while left:
        path, value = left.pop()
        wrong = ""
        if isinstance(value, int) and value.bit_length() > 64:
            wrong = "a number of more than 64 bits"
        elif isinstance(value, int | float) and value < 0:
            wrong = f"{value}, where nothing is less than 0"
        if wrong:
            raise InputError(
                f"{where}: {path}: {wrong}: correct it, or write the file again with "
                "`attnctl probe --save FILE`"
            )
        if isinstance(value, dict):
            left += [(f"{path}.{key}".lstrip("."), one) for key, one in value.items()]
        elif isinstance(value, list | tuple):
            left += [(f"{path}[{place}]", one) for place, one in enumerate(value)]


def _check_schema(schema: str, where: str) -> None:
    family, _, version = schema.rpartition("/")
    major = version.partition(".")[0]
    if family != _FAMILY or not (major.isascii() and major.isdigit()):
        raise InputError(f"{where}: schema: {schema!r} is not a machine file (wanted {SCHEMA!r})")
    if int(major) > _MAJOR:
        raise InputError(
            f"{where}: schema: {schema!r} is newer than this attnctl reads ({SCHEMA!r}): "
            "upgrade attnctl, or save the machine again with this version"
        )


def _explain(message: str, where: str) -> str:
    """One sentence out of msgspec's "Expected `int`, got `str` - at `$.cpu.cores`"."""
    problem, _, at = message.partition(" - at ")
    key_path = at.strip("`").removeprefix("$").removeprefix(".")
    what = problem[:1].lower() + problem[1:].replace("`", "'")
    place = f"{where}: {key_path}" if key_path else where
    return f"{place}: {what}: correct it, or write the file again with `attnctl probe --save FILE`"


def _not_found(source: str) -> str:
    if _looks_like_path(source):
        return f"{source}: no such machine file: write one with `attnctl probe --save FILE`"
    from difflib import get_close_matches

    known = names()
    spellings = {_squash(name): name for name in known}
    spellings.update((alias, name) for alias, name in _ALIASES.items() if name in known)
    close = get_close_matches(_squash(source), spellings, n=3, cutoff=0.7)
    near = list(dict.fromkeys(spellings[key] for key in close))
    every = f"known are {', '.join(known)}, and architectures, as sm_90 or gfx942"
    hint = f"did you mean {' or '.join(near)}?" if near else every
    return f"{source}: no machine or file of that name: {hint}"
