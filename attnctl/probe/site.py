"""What is installed for Python, from the names in its folders alone: nothing is imported."""

from __future__ import annotations

import re

from attnctl.probe.host import Host, HostError, names_in, read, site_dirs

_VERSION = re.compile(r"""^__version__(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class Site:
    """The folders that Python imports from, each listed once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.listings: list[tuple[str, frozenset[str]]] = []
        self.problems: list[HostError] = []
        # distribution -> (version, folder of its metadata), in the order of sys.path
        self.distributions: dict[str, list[tuple[str, str]]] = {}
        self._finders: list[str] = []
        for folder in site_dirs(host):
            self._add(folder)

    def _add(self, folder: str) -> None:
        try:
            names = names_in(self.host, folder)
        except HostError as error:
            if error.kind != "absent":  # a folder of sys.path that is not there is quite usual
                self.problems.append(error)
            return
        self.listings.append((folder, frozenset(names)))
        for name in names:
            if entry := metadata(name):
                found = (entry[1], f"{folder}/{name}")
                self.distributions.setdefault(normal(entry[0]), []).append(found)
            elif name.startswith("__editable___") and name.endswith("_finder.py"):
                self._finders.append(f"{folder}/{name}")

    def distribution(self, *names: str) -> tuple[str, str] | None:
        """(version, folder of the metadata) of the first of these distributions that is there."""
        return next(
            (self.distributions[name][0] for name in names if name in self.distributions), None
        )

    def module(self, name: str) -> str | None:
        """Where a top-level module is: a folder, or a file with its suffix; None where nowhere."""
        for folder, names in self.listings:
            if name in names:
                return f"{folder}/{name}"
            if f"{name}.py" in names:
                return f"{folder}/{name}.py"
        return self._editable(name)

    def _editable(self, name: str) -> str | None:
        """The source folder of an editable install whose finder maps this module."""
        for finder in self._finders:
            try:
                text = read(self.host, finder)
            except HostError:
                continue
            # MAPPING = {'vllm': '/src/vllm/vllm'}
            for quote in ("'", '"'):
                _, found, rest = text.partition(f"{quote}{name}{quote}: {quote}")
                if found:
                    return rest.partition(quote)[0]
        return None

    def files(self, path: str) -> frozenset[str]:
        """The names in a folder; none where it cannot be listed."""
        try:
            return frozenset(names_in(self.host, path))
        except HostError:
            return frozenset()

    def holds(self, name: str) -> str | None:
        """The first folder of sys.path that has a file of this name."""
        return next((folder for folder, names in self.listings if name in names), None)

    def written_version(self, module: str) -> tuple[str, str] | None:
        """(version, file) from a module's own source, for what has no metadata."""
        files = (
            [module]
            if module.endswith(".py")
            else [f"{module}/{name}" for name in ("version.py", "_version.py", "__init__.py")]
        )
        for file in files:
            try:
                match = _VERSION.search(read(self.host, file))
            except HostError:
                continue
            if match:
                return match[1], file
        return None


def metadata(name: str) -> tuple[str, str] | None:
    """(distribution, version) of a folder of metadata; None for every other name."""
    stem, dot, kind = name.rpartition(".")
    if kind == "egg-info":
        head, _, tail = stem.rpartition("-")
        stem = head if tail[:3] in ("py2", "py3") else stem
    elif kind != "dist-info":
        return None
    distribution, dash, version = stem.rpartition("-")
    return (distribution, version) if dot and dash else None


def normal(name: str) -> str:
    """A distribution's name in the one spelling that file names use."""
    return name.replace("-", "_").replace(".", "_").lower()
