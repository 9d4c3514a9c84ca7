"""What is installed for Python, from the names in its folders alone: nothing is imported."""

from __future__ import annotations

import re

from attnctl.probe.host import Host, HostError, names_in, read, site_dirs

_METADATA = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>[^-]+)(?:-py[\d.]+.*)?\.(?:dist|egg)-info"
)
_FINDER = re.compile(r"__editable___.*_finder\.py")
_VERSION = re.compile(r"""^__version__(?:\s*:[^=]+)?\s*=\s*["']([^"']+)["']""", re.MULTILINE)


class Site:
    """The folders that Python imports from, each listed once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.listings: list[tuple[str, frozenset[str]]] = []
        self.problems: list[HostError] = []
        # distribution -> (version, folder of its metadata), in the order of sys.path
        self.distributions: dict[str, list[tuple[str, str]]] = {}
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
            if match := _METADATA.fullmatch(name):
                entry = (match["version"], f"{folder}/{name}")
                self.distributions.setdefault(normal(match["name"]), []).append(entry)

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
        pattern = re.compile(rf"""["']{re.escape(name)}["']\s*:\s*["']([^"']+)["']""")
        for folder, names in self.listings:
            for file in names:
                if _FINDER.fullmatch(file):
                    try:
                        match = pattern.search(read(self.host, f"{folder}/{file}"))
                    except HostError:
                        continue
                    if match:
                        return match[1]
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


def normal(name: str) -> str:
    """A distribution's name in the one spelling that file names use."""
    return re.sub(r"[-_.]+", "_", name).lower()
