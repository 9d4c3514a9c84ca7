"""A hash of the kernel sources that each backend runs, from their text: nothing of it is imported.

A backend's sources are its folder, less its declarations (what it takes, and what smoke compiles of
it), and what of attnctl.kernels those files name, and so on: an edit of a shared kernel changes the
hash of every backend that runs it. The operations' specifications are no kernels, nor are the checks
that refuse a call before anything is launched, and an installed package is told by its version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from attnctl.registry import Backend, Registry

LENGTH = 16
"""Hexadecimal digits that are kept: 64 bits tell one state of a source from another."""

_NAMED = re.compile(r"attnctl\.kernels((?:\.(?:\w+|\{\w+\}))*)(?:\s+import\s+(\([^)]*\)|[^\n]*))?")
_DECLARED = ("__init__.py", "compiled.py")
"""What a backend says of its kernels, in files that no batch runs."""

_CHECKS = "checks.py"
"""How the names of files end that let a call pass or refuse it, and launch nothing."""

_SUFFIXES = (".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inc", ".cl")


class KernelHashes:
    """Hashes by backend; each file is read once, and only when a backend that runs it is asked for.

    folder: where the shared kernels are; by default those of this package.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(__file__).parent.parent / "kernels"
        self._texts: dict[Path, bytes] = {}
        self._beside: dict[Path, tuple[Path, ...]] = {}
        self._named: dict[tuple[Path, tuple[str, ...]], tuple[Path, ...]] = {}

    def of(self, backend: Backend) -> str | None:
        """The hash of what this backend runs; None where no kernel of it is written."""
        import hashlib

        files = self.files(backend)
        if not files:
            return None
        whole = hashlib.sha256()
        for name, path in sorted((self._name(path), path) for path in files):
            whole.update(name.encode() + b"\0" + hashlib.sha256(self._text(path)).digest())
        return whole.hexdigest()[:LENGTH]

    def files(self, backend: Backend) -> frozenset[Path]:
        """The sources that this backend runs."""
        left = list(_own_files(backend))
        found: set[Path] = set()
        while left:
            path = left.pop()
            if path not in found and not path.name.endswith(_CHECKS):
                found.add(path)
                left += self._names(path, backend.ops)
        return frozenset(found)

    def _names(self, path: Path, ops: tuple[str, ...]) -> tuple[Path, ...]:
        """The sources that this one names; {op} in a name stands for the backend's operations."""
        key = (path, ops)
        if key not in self._named:
            text = self._text(path).decode("utf-8", "replace")
            if path.is_relative_to(self._folder):
                # a package that makes the names of its modules at run time
                parts = path.parent.relative_to(self._folder).parts
                text = text.replace("{__name__}", ".".join(("attnctl.kernels", *parts)))
            found = [one for one in self._sources(path.parent) if one.name in text]
            for dotted, imported in _NAMED.findall(text):
                found += self._modules(dotted.split(".")[1:], imported, ops)
            self._named[key] = tuple(source for source in found if source.is_file())
        return self._named[key]

    def _modules(self, parts: list[str], imported: str, ops: tuple[str, ...]) -> Iterator[Path]:
        """Where a dotted name below attnctl.kernels, and modules imported from it, would be."""
        folders = [self._folder]
        for place, part in enumerate(parts, start=1):
            folders = [folder / name for folder in folders for name in _filled(part, folder, ops)]
            # a module's name may go on with what is in it, one that is not known may not
            if place == len(parts) or not part.startswith("{"):
                yield from (folder.with_name(f"{folder.name}.py") for folder in folders)
        words = [word for word in re.findall(r"\w+", imported) if word != "as"]
        for folder in folders:
            modules = [folder / f"{word}.py" for word in words]
            yield from modules
            # what is imported from a package may be its modules alone
            if parts and not (modules and all(module.is_file() for module in modules)):
                yield folder / "__init__.py"

    def _sources(self, folder: Path) -> tuple[Path, ...]:
        """The sources of a folder that Python does not import: another names them by file name."""
        if folder not in self._beside:
            found = (one for one in folder.iterdir() if one.suffix in _SUFFIXES[1:])
            self._beside[folder] = tuple(sorted(found))
        return self._beside[folder]

    def _text(self, path: Path) -> bytes:
        if path not in self._texts:
            self._texts[path] = path.read_bytes()
        return self._texts[path]

    def _name(self, path: Path) -> str:
        """The path without where the package happens to be installed."""
        if path.is_relative_to(self._folder):
            return f"kernels/{path.relative_to(self._folder).as_posix()}"
        return f"backend/{path.name}"


def kernel_hashes(
    registry: Registry, names: Iterable[str] | None = None, hashes: KernelHashes | None = None
) -> dict[str, str]:
    """Backend -> hash of the kernel sources that it runs here; those without a kernel are absent.

    names: only these backends; by default all.
    """
    hashes = hashes or KernelHashes()
    wanted = None if names is None else frozenset(names)
    found = (
        (backend.name, hashes.of(backend))
        for backend in registry.backends
        if wanted is None or backend.name in wanted
    )
    return {name: hashed for name, hashed in found if hashed is not None}


def _own_files(backend: Backend) -> Iterator[Path]:
    """The sources of its folder, and of the backend's whose kernels compute beside its library."""
    yield from _folder_files(backend.module)
    if backend.beside:
        yield from _folder_files(f"attnctl.backends.{backend.beside.lower()}")


def _folder_files(module: str) -> Iterator[Path]:
    """The sources of a backend's own folder, less its declarations; of a lone module, itself."""
    declared = getattr(sys.modules.get(module), "__file__", None)
    if declared is None:
        return
    path = Path(declared)
    if path.name != "__init__.py":
        yield path
        return
    for entry in sorted(path.parent.iterdir()):
        if entry.suffix in _SUFFIXES and entry.name not in _DECLARED:
            yield entry


def _filled(part: str, folder: Path, ops: tuple[str, ...]) -> tuple[str, ...]:
    """What a part of a dotted name stands for: itself, an operation, or whatever is there."""
    if not part.startswith("{"):
        return (part,)
    if part == "{op}":
        return ops
    return tuple(sorted({entry.stem for entry in folder.iterdir()})) if folder.is_dir() else ()
