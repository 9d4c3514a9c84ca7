"""Installs the checkout for each Python that is named, imports all of it, and selects for a model.

    python tools/pythons.py python3.10 python3.12 ...     each in a new environment, by pip

No environment here has torch: modules that need it are named in a count of their own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMPORTS = """
import importlib, pkgutil, sys
import attnctl
OF_OTHERS = {"torch", "triton", "numpy", "transformers", "matplotlib", "pytest", "amdsmi"}
whole, waiting = 0, 0
for module in pkgutil.walk_packages(attnctl.__path__, "attnctl."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        whole += 1
    except ModuleNotFoundError as error:
        if error.name not in OF_OTHERS:
            raise
        waiting += 1
version = ".".join(map(str, sys.version_info[:3]))
print(f"Python {version}: {whole} modules imported, {waiting} more wait for torch and the like")
"""


def tried(python: str) -> None:
    """CalledProcessError where something of it does not end with exit code 0."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inside = f"{folder}/bin/python"
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
        subprocess.run([inside, *words], check=True, stderr=subprocess.DEVNULL)
        subprocess.run([inside, "-W", "error", "-c", IMPORTS], check=True, cwd=folder)
        model = ROOT / "examples" / "llama-3.1-8b.json"
        select = ["-m", "attnctl", "select", "--model", str(model), "--machine", "h200"]
        shown = subprocess.run([inside, *select], check=True, cwd=folder, stdout=subprocess.PIPE)
        print(f"  {shown.stdout.decode().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or [sys.executable]:
        tried(name)
