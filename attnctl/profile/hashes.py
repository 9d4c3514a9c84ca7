"""A hash of the kernel sources that each backend runs, from their text: nothing of it is imported.

A backend's sources are its folder, less its declarations (what it takes, and what smoke compiles of
it), and what of attnctl.kernels those files name, and so on: an edit of a shared kernel changes the
hash of every backend that runs it. What only the other kind of device runs is left out: no Triton
on a processor, no C++ on a GPU. The operations' specifications are no kernels, nor are checks that
refuse a call before anything is launched, and an installed package is told by its version.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from attnctl.profile.keys import DeviceKind
from attnctl.profile.values import Profile
from attnctl.registry import Backend, Registry

LENGTH = 16
"""Hexadecimal digits that are kept: 64 bits tell one state of a source from another."""

_NAMED = re.compile(r"attnctl\.kernels((?:\.(?:\w+|\{\w+\}))*)(?:\s+import\s+(\([^)]*\)|[^\n]*))?")
_WORD = re.compile(r"\w+")
_DECLARED = ("__init__.py", "compiled.py")
"""What a backend says of its kernels, in files that no batch runs."""

_CHECKS = "checks.py"
"""How the names of files end that let a call pass or refuse it, and launch nothing."""

_NEVER_RUN: dict[DeviceKind, tuple[str, ...]] = {
    "cpu": ("rivals", "triton"),
    "gpu": ("cpu", "eager"),
}
"""The folders of attnctl.kernels of which a kind of device runs nothing."""

_SUFFIXES = (".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc", ".cl")


class Folders:
    """The files of folders, each of which is listed once."""

    def __init__(self) -> None:
        self._files: dict[str, frozenset[str]] = {}
        self._named: dict[str, tuple[str, ...]] = {}

    def files(self, folder: str) -> frozenset[str]:
        """The names of its files; none where it is no folder, or not there."""
        if folder not in self._files:
            try:
                with os.scandir(folder) as entries:
                    self._files[folder] = frozenset(one.name for one in entries if one.is_file())
            except OSError:
                self._files[folder] = frozenset()
        return self._files[folder]

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        folder, _, name = path.rpartition(os.sep)
        return name in self.files(folder)

    def named(self, folder: str) -> tuple[str, ...]:
        """Its sources that Python does not import: another names them by file name."""
        if folder not in self._named:
            found = (one for one in self.files(folder) if one.endswith(_SUFFIXES[1:]))
            self._named[folder] = tuple(found)
        return self._named[folder]

    def filled(self, part: str, folder: str, ops: tuple[str, ...]) -> tuple[str, ...]:
        """What a part of a dotted name stands for: itself, an operation, or whatever is there."""
        if not part.startswith("{"):
            return (part,)
        if part == "{op}":
            return ops
        return tuple({name.partition(".")[0] for name in _everything(folder)})


def _everything(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _sha256() -> Any:
    """SHA-256 as Python brings it along: hashlib loads OpenSSL, which takes longer than to hash."""
    for module in ("_sha2", "_sha256"):  # from Python 3.12, and before; some builds leave it out
        with suppress(ImportError):
            return import_module(module).sha256
    return import_module("hashlib").sha256


class KernelHashes:
    """Hashes by backend; each file is read once, and only when a backend that runs it is asked for.

    folder: where the shared kernels are; by default those of this package.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # paths are strings in here: every `select` asks, and pathlib would cost more than reading
        self._folder = str(folder or Path(__file__).parent.parent / "kernels")
        self._folders = Folders()
        self._texts: dict[str, bytes] = {}
        self._named: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def of(self, backend: Backend, kind: DeviceKind) -> str | None:
        """The hash of what it runs on this kind of device; None where no kernel is written."""
        files = self._files(backend, kind)
        if not files:
            return None
        sha256 = _sha256()
        whole = sha256()
        for name, path in sorted((self._name(path), path) for path in files):
            whole.update(name.encode() + b"\0" + sha256(self._text(path)).digest())
        digest: str = whole.hexdigest()
        return digest[:LENGTH]

    def files(self, backend: Backend, kind: DeviceKind) -> frozenset[Path]:
        """The sources that this backend runs on this kind of device."""
        return frozenset(map(Path, self._files(backend, kind)))

    def _files(self, backend: Backend, kind: DeviceKind) -> set[str]:
        left = list(self._own_files(backend))
        found: set[str] = set()
        others = tuple(f"{self._folder}{os.sep}{name}{os.sep}" for name in _NEVER_RUN[kind])
        while left:
            path = left.pop()
            if path not in found and not path.endswith(_CHECKS) and not path.startswith(others):
                found.add(path)
                left += self._names(path, backend.ops)
        return found

    def _own_files(self, backend: Backend) -> Iterator[str]:
        """The sources of its folder, and of the backend's whose kernels compute beside it."""
        yield from self._folder_files(backend.module)
        if backend.beside:
            yield from self._folder_files(f"attnctl.backends.{backend.beside.lower()}")

    def _folder_files(self, module: str) -> Iterator[str]:
        """A backend's own sources, less its declarations; of a lone module, itself."""
        declared = getattr(sys.modules.get(module), "__file__", None)
        if declared is None:
            return
        folder, name = os.path.split(declared)
        if name != "__init__.py":
            yield declared
            return
        for name in self._folders.files(folder):
            if name.endswith(_SUFFIXES) and name not in _DECLARED:
                yield os.path.join(folder, name)  # noqa: PTH118

    def _names(self, path: str, ops: tuple[str, ...]) -> tuple[str, ...]:
        """The sources that this one names; {op} in a name stands for the backend's operations."""
        key = (path, ops)
        if key not in self._named:
            text = self._text(path).decode("utf-8", "replace")
            folder = os.path.dirname(path)  # noqa: PTH120
            below = self._below(folder)
            if below is not None:
                # a package that makes the names of its modules at run time
                text = text.replace("{__name__}", ".".join(("attnctl.kernels", *below)))
            beside = (one for one in self._folders.named(folder) if one in text)
            found = [os.path.join(folder, one) for one in beside]  # noqa: PTH118
            for dotted, imported in _NAMED.findall(text):
                found += self._modules(dotted.split(".")[1:], imported, ops)
            self._named[key] = tuple(found)
        return self._named[key]

    def _modules(self, parts: list[str], imported: str, ops: tuple[str, ...]) -> Iterator[str]:
        """What is there of a dotted name below attnctl.kernels and of modules imported from it."""
        here, folders = self._folders, [self._folder]
        for place, part in enumerate(parts, start=1):
            folders = [
                f"{one}{os.sep}{name}" for one in folders for name in here.filled(part, one, ops)
            ]
            # a module's name may go on with what is in it, one that is not known may not
            if place == len(parts) or not part.startswith("{"):
                yield from (f"{one}.py" for one in folders if here.has(f"{one}.py"))
        names = [f"{word}.py" for word in _WORD.findall(imported) if word != "as"]
        for folder in folders:
            files = here.files(folder)
            there = [name for name in names if name in files]
            yield from (f"{folder}{os.sep}{name}" for name in there)
            # what is imported from a package may be its modules alone
            if parts and "__init__.py" in files and (not names or len(there) < len(names)):
                yield f"{folder}{os.sep}__init__.py"

    def _text(self, path: str) -> bytes:
        if path not in self._texts:
            with open(path, "rb") as file:  # noqa: PTH123
                self._texts[path] = file.read()
        return self._texts[path]

    def _below(self, path: str) -> list[str] | None:
        """The names that lead from the shared kernels to a path; None: it is elsewhere."""
        if path == self._folder:
            return []
        inside = path.startswith(self._folder + os.sep)
        return path[len(self._folder) + 1 :].split(os.sep) if inside else None  # noqa: PTH206

    def _name(self, path: str) -> str:
        """The path without where the package happens to be installed."""
        below = self._below(path)
        if below is None:
            return f"backend/{os.path.basename(path)}"  # noqa: PTH119
        return "/".join(("kernels", *below))


def kernel_hashes(
    registry: Registry,
    kind: DeviceKind,
    names: Iterable[str] | None = None,
    hashes: KernelHashes | None = None,
) -> dict[str, str]:
    """Backend -> hash of the kernel sources that it runs on this kind of device, as they are here.

    Those without a kernel are absent. names: only these backends; by default all.
    """
    hashes = hashes or KernelHashes()
    wanted = None if names is None else frozenset(names)
    found = (
        (backend.name, hashes.of(backend, kind))
        for backend in registry.backends
        if wanted is None or backend.name in wanted
    )
    return {name: hashed for name, hashed in found if hashed is not None}


def hashes_of(
    profile: Profile, registry: Registry, hashes: KernelHashes | None = None
) -> dict[str, str]:
    """Backend -> hash here, of those that some entry of the profile states one of."""
    stated = {name for entry in profile.entries for name in entry.kernels}
    return kernel_hashes(registry, profile.key.kind, stated, hashes)
