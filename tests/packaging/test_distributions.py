"""The sdist and the wheel: what is in them, how large, and that the wheel works by itself."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from attnctl import __version__
from tests.packaging.conftest import ROOT, Built

MOST_BYTES = 2_000_000
OF_OTHERS = ("torch", "triton", "numpy", "transformers", "amdsmi")


def packaged(suffix: str) -> set[str]:
    """Files of the package in the checkout that an installation needs, as in a wheel."""
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "attnctl").rglob(f"*{suffix}")}
    return {name for name in found if "__pycache__" not in name}


def test_the_wheel_holds_code_profiles_and_c_sources_and_no_tests(built: Built) -> None:
    """Every module, every C++ file, every profile; nothing of tests, tools or benchmarks."""
    names = set(zipfile.ZipFile(built.wheel).namelist())
    assert packaged(".py") <= names
    assert packaged(".cpp") | packaged(".h") <= names
    profiles = {path.relative_to(ROOT) for path in (ROOT / "profiles").rglob("*.json")}
    assert {f"attnctl/{path.as_posix()}" for path in profiles} <= names
    assert "attnctl/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"attnctl", f"attnctl-{__version__}.dist-info"}
    assert not [name for name in names if "/tests/" in name or name.endswith(".so")]


def test_the_wheel_is_small(built: Built) -> None:
    """Under 2 MB."""
    assert built.wheel.stat().st_size < MOST_BYTES


def test_the_sdist_holds_what_the_wheel_is_made_of(built: Built) -> None:
    """And neither tests nor what lies about in a checkout."""
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    assert packaged(".py") <= names
    assert not [name for name in names if name.startswith(("tests/", ".venv", "benchmarks/"))]


def test_it_works_from_the_wheel_as_from_the_checkout(built: Built, tmp_path: Path) -> None:
    """In an environment that holds the wheel and this one's libraries, away from the checkout."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = next((home / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(site)
    # the libraries that the wheel asks for, without the checkout that an editable install adds
    paths = [path for path in sys.path if path.endswith("site-packages")]
    bridge = f"import sys; sys.path += {paths!r}"
    (site / "libraries.pth").write_text(bridge)
    where = "import attnctl; print(attnctl.__file__)"
    assert str(home) in _run(python, tmp_path, "-c", where)
    config = str(ROOT / "examples" / "llama-3.1-8b.json")
    answers = {}
    # an answer names the files of the profiles that it looked at
    places = {"wheel": site / "attnctl" / "profiles", "checkout": ROOT / "profiles"}
    for name, interpreter in (("wheel", python), ("checkout", Path(sys.executable))):
        folder = tmp_path if name == "wheel" else ROOT
        answers[name] = [
            _run(interpreter, folder, "-m", "attnctl", *words, "--json").replace(
                str(places[name]), "PROFILES"
            )
            for words in (
                ("select", "--model", config, "--machine", "h200"),
                ("select", "--model", config, "--machine", "all"),
                ("list",),
            )
        ]
    assert answers["wheel"] == answers["checkout"]
    quick = ("smoke", "--backend", "CPU_ATTN", "--quick", "--json")
    smoked = json.loads(_run(python, tmp_path, "-m", "attnctl", *quick))
    found = [trial["status"] for one in smoked["backends"] for trial in one["trials"]]
    assert found.count("pass") >= 15
    assert set(found) <= {"pass", "unsupported"}


def test_an_install_beside_another_torch_changes_nothing_of_it(built: Built) -> None:
    """pip would bring in no package of which a serving engine's environment has its own."""
    words = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    found = subprocess.run(
        [sys.executable, "-m", "pip", *words, str(built.wheel)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    report = json.loads(found.stdout)
    names = {one["metadata"]["name"].lower() for one in report["install"]}
    assert "attnctl" in names
    assert names.isdisjoint(OF_OTHERS)


def test_every_file_is_python_3_10(built: Built) -> None:
    """The grammar of the oldest version that is declared."""
    with zipfile.ZipFile(built.wheel) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        declared = wheel.read(metadata).decode()
        assert "Requires-Python: >=3.10" in declared
        for minor in range(10, 14):
            assert f"Classifier: Programming Language :: Python :: 3.{minor}\n" in declared
        for name in wheel.namelist():
            if name.endswith(".py"):
                ast.parse(wheel.read(name), name, feature_version=(3, 10))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_written_for_each_shell(shell: str) -> None:
    """The script names the program, and asks it for the commands."""
    program = Path(sys.executable).parent / "attnctl"
    environment = {**os.environ, "_ATTNCTL_COMPLETE": f"source_{shell}"}
    found = subprocess.run(
        [str(program)], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert "_ATTNCTL_COMPLETE=complete_" in found.stdout, found.stderr
    assert "attnctl" in found.stdout


def _run(python: Path, folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [str(python), *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=environment,
        check=False,
    )
    # 1: on some machines the answer is no
    assert found.returncode in (0, 1), found.stderr[-2000:]
    return found.stdout
