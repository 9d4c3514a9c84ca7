"""Real environments that hold some of the installed distributions and lack the others."""

from __future__ import annotations

import re
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.packaging.conftest import ROOT

if TYPE_CHECKING:
    from importlib.metadata import Distribution

# what attnctl asks for, less the one of the optional packages that it installs itself
NEEDED = ("typer", "rich", "psutil", "msgspec")
OPTIONAL = ("torch", "triton", "nvidia-ml-py", "amdsmi")
# the modules by which they are imported
MODULES = {"torch": "torch", "triton": "triton", "nvidia-ml-py": "pynvml", "amdsmi": "amdsmi"}
# Triton's interpreter computes with it
BESIDE = {"triton": ("numpy",)}


def make(home: Path, present: Iterable[str]) -> Path:
    """The interpreter of a new environment with these optional distributions, their own needs
    and this checkout, and nothing else: an import of what is absent fails as it does elsewhere.

    The files are those of this environment, by symbolic links.
    """
    from importlib.metadata import distribution

    venv.create(home, with_pip=False)
    site = next((home / "lib").glob("python*")) / "site-packages"
    for name in sorted(
        _closure([*NEEDED, *present, *(x for p in present for x in BESIDE.get(p, ()))])
    ):
        for path in _tops(distribution(name)):
            target = site / path.name
            if not target.exists():
                target.symlink_to(path)
    (site / "attnctl.pth").write_text(f"{ROOT}\n")
    return home / "bin" / "python"


def _closure(names: Iterable[str]) -> set[str]:
    """The distributions and what they require here, extras left out."""
    from importlib.metadata import PackageNotFoundError, distribution

    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:  # asked for on other platforms or Pythons alone
            continue
        found.add(name)
        # torch's own need of Triton is what the subsets are about
        waiting += [
            one
            for text in requires
            if "extra ==" not in text and (one := _name(text)) not in OPTIONAL
        ]
    return found


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return _normal(found[0])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _tops(one: Distribution) -> set[Path]:
    """The entries of site-packages that a distribution owns."""
    root = Path(str(one.locate_file("")))
    names = {
        file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")
    }
    assert names, f"{one.metadata['Name']}: no record of its files"
    return {root / name for name in names if (root / name).exists()}


def without_paths(environment: dict[str, str]) -> dict[str, str]:
    """The environment variables less those that would bring other packages in."""
    return {name: value for name, value in environment.items() if name != "PYTHONPATH"}
