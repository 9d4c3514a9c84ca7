"""What the commands import, proved in a fresh interpreter where heavy packages are blocked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.commands.running import LLAMA, ROOT

HEAVY = (
    "torch",
    "triton",
    "numpy",
    "transformers",
    "pydantic",
    "importlib.metadata",
    "dataclasses",
    "matplotlib",
)

# blocks the packages, runs the command, then prints every module that was loaded
SCRIPT = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from attnctl.cli import run
code = run({words!r})
loaded = sorted(name for name, module in sys.modules.items() if module is not None)
import json
print(json.dumps([int(code), loaded]), file=sys.stderr)
"""

JSON = (
    ("select", "--model", LLAMA, "--machine", "h200", "--json"),
    ("probe", "--machine", "h200", "--json"),
    ("probe", "--json"),
    ("probe", "--libs", "--json"),
    ("list", "--json"),
    ("profile", "list", "--machine", "h200", "--json"),
    ("select", "--model", LLAMA, "--machine", "h200", "--map", "--sweep", "batch=1..64", "--json"),
)
PLAIN = (
    ("--help",),
    ("select", "--help"),
    ("select", "--model", LLAMA, "--machine", "h200"),
    ("select", "--model", LLAMA, "--machine", "all"),
    ("probe", "--machine", "zen4"),
    ("probe",),
    ("probe", "--libs"),
    ("list",),
    ("list", "--markdown"),
    ("explain", "compute_capability"),
    ("report", "--model", LLAMA, "-o", "/dev/null"),
    ("profile", "list"),
    ("profile", "show", "--origin"),
    ("profile", "validate"),
    ("profile", "schema"),
)


def loaded(words: tuple[str, ...], blocked: tuple[str, ...]) -> set[str]:
    """The modules in sys.modules after a command, which must end with a yes or a no."""
    script = SCRIPT.format(words=words, blocked=blocked)
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, modules = json.loads(run.stderr.splitlines()[-1])
    assert code in (0, 1), run.stderr[:1000]
    return set(modules)


@pytest.mark.parametrize("words", [*JSON, *PLAIN], ids=" ".join)
def test_no_command_imports_what_it_can_do_without(words: tuple[str, ...]) -> None:
    """No torch, Triton, NumPy, transformers, pydantic or metadata: each command runs without."""
    modules = loaded(words, HEAVY)
    assert not modules & set(HEAVY)


@pytest.mark.parametrize("words", [*JSON, *PLAIN], ids=" ".join)
def test_rich_waits_for_a_terminal(words: tuple[str, ...]) -> None:
    """Into a pipe nothing is drawn, so Rich is not imported."""
    modules = loaded(words, ("rich",))
    assert not any(name.partition(".")[0] == "rich" for name in modules)


def test_the_probe_needs_no_package_of_a_vendor() -> None:
    """Without pynvml, amdsmi and psutil the probe ends well, and asks none of them in process."""
    modules = loaded(("probe", "--json"), ("pynvml", "amdsmi", "psutil"))
    assert not modules & {"pynvml", "amdsmi", "psutil"}


def test_help_loads_no_command_and_no_value_types() -> None:
    """`--help` costs Typer alone: no command's module, no msgspec."""
    modules = loaded(("--help",), ("msgspec",))
    assert not any(name.startswith("attnctl.commands.") for name in modules)


def test_a_selection_by_timings_loads_neither_openssl_nor_json() -> None:
    """Kernels' sources are hashed by Python's own code; a plain config needs no second parser."""
    modules = loaded(("select", "--model", LLAMA, "--machine", "h200", "--json"), ())
    assert "attnctl.profile.hashes" in modules
    assert not modules & {"hashlib", "_hashlib", "json"}


def test_msgspec_is_loaded_without_typing_extensions() -> None:
    """From Python 3.11 on, whose typing has it all; others may import it afterwards."""
    modules = loaded(("probe", "--machine", "h200", "--json"), ())
    assert "msgspec" in modules
    assert ("typing_extensions" in modules) == (sys.version_info < (3, 11))
    code = (
        "import sys\n"
        "from attnctl.commands import load_msgspec\n"
        "load_msgspec()\n"
        "import typing_extensions\n"
        "load_msgspec()\n"
        "assert sys.modules['typing_extensions'] is typing_extensions\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_command_loads_no_other_command() -> None:
    """`probe` loads neither the registry nor the module of another command."""
    modules = loaded(("probe", "--machine", "h200", "--json"), ())
    commands = {name for name in modules if name.startswith("attnctl.commands.")}
    assert commands == {"attnctl.commands.probe"}
    assert "attnctl.registry" not in modules
