"""Prints the requirements of one dependency group of pyproject.toml, for `pip install -r`.

pip learned --group in 25.1; this serves the older ones that fresh machines have.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parent.parent


def requirements(group: str) -> list[str]:
    """The requirements of a group, in the file's order."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    return list(groups[group])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n".join(requirements(name)))
