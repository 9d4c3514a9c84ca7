"""docs/adding-a-backend.md, followed word for word: its files, its commands, their outputs."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.commands.running import LLAMA, ROOT

PAGE = ROOT / "docs" / "adding-a-backend.md"
BLOCKS = runpy.run_path(str(ROOT / "tools" / "blocks.py"))["blocks"](PAGE)
FILES = {block.mark: block.body for block in BLOCKS if block.language in ("py", "toml")}
PROGRAMS = ("attnctl", "pip", "pytest")


class Step(NamedTuple):
    command: str
    output: str


def steps() -> list[Step]:
    """The commands of the page in its order, each with what it says that they print."""
    shown = "".join(block.body for block in BLOCKS if block.language == "console")
    parts = re.split(r"^\$ (.*)\n", shown, flags=re.MULTILINE)
    assert parts[0] == ""
    return [Step(*pair) for pair in zip(parts[1::2], parts[2::2], strict=True)]


def matches(shown: str, printed: str) -> bool:
    """Whether the output is the page's, where "..." stands for any lines."""
    pattern = re.escape(_settled(shown)).replace(r"\.\.\." + "\\\n", r"(?:.*\n)*?")
    return re.fullmatch(pattern, _settled(printed)) is not None


def _settled(text: str) -> str:
    """Without durations, and without the number of cases where all of them are meant."""
    text = re.sub(r" in [\d.]+s\b.*", " in ?s", text)
    return re.sub(r"\b([1-9]\d*) of \1 cases", "all cases", text)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment whose pip installs into a folder of its own, out of what is here."""
    programs, target = tmp_path / "bin", tmp_path / "installed"
    programs.mkdir()
    for name in PROGRAMS:
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((str(target), str(ROOT))),
        "PIP_TARGET": str(target),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # so does pip spell a yes here
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }


def test_the_page_followed_word_for_word_gives_a_proven_backend(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    """Each file is written, each command run in order, each output compared."""
    folder = tmp_path / "attnctl-loop"
    for name, body in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")
    shutil.copy(LLAMA, folder / "config.json")
    found = steps()
    assert [step.command.split()[0] for step in found] == [
        *("pip", "attnctl", "attnctl", "attnctl", "attnctl", "pytest")
    ]
    for step in found:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.command],
            cwd=folder,
            env=shell,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert ended.returncode == 0, (
            f"{step.command}\n{ended.stdout[-3000:]}{ended.stderr[-2000:]}"
        )
        assert matches(step.output, ended.stdout), f"{step.command}\n{ended.stdout}"


def test_an_output_that_is_not_the_page_s_is_noticed() -> None:
    """Dots stand for whole lines; durations and how many cases there are may differ."""
    assert matches("a\n...\nb\n", "a\nb\n")
    assert matches("a\n...\nb\n", "a\nx\ny\nb\n")
    assert matches("11 passed in 21.40s\n", "11 passed in 61.02s (0:01:01)\n")
    assert matches("109 of 109 cases passed\n", "120 of 120 cases passed\n")
    assert not matches("109 of 109 cases passed\n", "108 of 109 cases passed\n")
    assert not matches("109 of 109 cases passed\n", "0 of 0 cases passed\n")
    assert not matches("a\n...\nb\n", "a\nx\nc\n")
    assert not matches("11 passed in 21.40s\n", "10 passed, 1 failed in 61.02s (0:01:01)\n")
