"""Every shell block of every page is run: as it stands, or with less work, or somewhere named."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import ROOT
from tests.docs.bounds import BOUNDS, ELSEWHERE, FOLLOWED, PAGES, Bound

SHELLS = ("sh", "console")
OTHERS = ("text", "python", "py", "toml")
blocks_of = runpy.run_path(str(ROOT / "tools" / "blocks.py"))["blocks"]
PROGRAMS = {"attnctl": "-m attnctl", "python": "", "python3": "", "pip": "-m pip"}
MAKES = re.compile(r"(?:(?:^|\s)(?:-o|--output|--out|--junit|--save|--record)\s+|>\s*)([^\s;&|]+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shell_blocks() -> list[tuple[str, Any]]:
    return [
        (name_of(page), block)
        for page in PAGES
        for block in blocks_of(page)
        if block.language in SHELLS
    ]


def held(page: str, block: Any, row: Any) -> bool:
    return bool(row.page == page and row.has in block.body)


def run_here() -> list[Any]:
    """Every block but those of the two tables of what runs elsewhere."""
    return [
        pytest.param(page, block, id=f"{page}:{block.line}")
        for page, block in shell_blocks()
        if page != FOLLOWED[0] and not any(held(page, block, row) for row in ELSEWHERE)
    ]


def script(block: Any, bound: Bound | None) -> str:
    """The block's commands, without prompts; each piece of its bound replaced."""
    text = block.body
    if re.search(r"^\$ ", text, re.MULTILINE):
        lines = text.splitlines()
        assert all(line.startswith("$ ") for line in lines), "a console block here is commands only"
        text = "".join(f"{line[2:]}\n" for line in lines)
    for piece, instead in bound.said.items() if bound else ():
        text, count = re.subn(piece, lambda _, said=instead: said, text)
        assert count == 1, f"{piece!r} stands there {count} times"
    return str(text)


def promised(text: str) -> list[str]:
    """Files that the commands are told to write, less those in a folder that they take away."""
    told = re.sub(r"(?:^|\s)#.*", "", text, flags=re.MULTILINE)
    return [name for name in MAKES.findall(told) if not name.startswith('"$dir/')]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A home of its own, where `attnctl`, `python` and `pip` are this checkout's."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    for name, words in PROGRAMS.items():
        program = home / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return {
        **kept,
        "HOME": str(home),
        "XDG_CACHE_HOME": caches,  # or each worker of pytest's would build the C++ again
        "PATH": os.pathsep.join((str(home / "bin"), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT),
        "PIP_NO_INDEX": "1",
        "PIP_DRY_RUN": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the pages name, where commands may write."""
    for name in ("examples", "profiles", "benchmarks", "tests/models"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(("page", "block"), run_here())
def test_a_shell_block_runs(page: str, block: Any, checkout: Path, environ: dict[str, str]) -> None:
    """Each command of it ends with exit code 0, and what it is told to write is there."""
    bound = next((row for row in BOUNDS if held(page, block, row)), None)
    for name, given in bound.given.items() if bound else ():
        if given is None:
            (checkout / name).unlink()
        elif isinstance(given, Path):
            shutil.copy(given, checkout / name)
        else:
            (checkout / name).write_text(given() if callable(given) else given)
    text = script(block, bound)
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=checkout,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{text}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    assert "Traceback" not in ended.stderr
    for name in promised(text):
        path = checkout / name
        assert any(path.iterdir()) if path.is_dir() else path.stat().st_size
        if name.endswith(".json"):
            json.loads(path.read_text())


def fences(page: Path) -> list[str]:
    """What opens each fence of a page, whatever it opens with."""
    lines = [line.strip() for line in page.read_text("utf-8").splitlines()]
    return [line for line in lines if line.startswith(("```", "~~~"))][::2]


def test_no_block_is_hidden_from_these_tests() -> None:
    """Every fence names a language that some test looks for; no command is set in by blanks."""
    for page in PAGES:
        for opening in fences(page):
            assert opening[3:].partition(" ")[0] in (*SHELLS, *OTHERS), f"{page}: {opening}"
        assert len(blocks_of(page)) == len(fences(page)), page
        assert not re.findall(r"^(?: {4,}|\t)\$ .*", page.read_text("utf-8"), re.MULTILINE), page


def test_every_row_is_of_one_block() -> None:
    """A row that fits no block, or two, is of a page that is no more."""
    found = shell_blocks()
    assert len(found) > 20
    for row in (*BOUNDS, *ELSEWHERE):
        assert row.why
        fits = [block for page, block in found if held(page, block, row)]
        assert len(fits) == 1, f"{row.page}, {row.has}: {len(fits)} blocks"


def test_what_runs_elsewhere_runs_there() -> None:
    """.ci/run takes a block by its mark, and two blocks of one mark are the same command."""
    for row in ELSEWHERE:
        (block,) = (block for page, block in shell_blocks() if held(page, block, row))
        assert f"README.md {block.mark} |" in (ROOT / row.by).read_text()
    marked = [block for _, block in shell_blocks() if block.mark]
    assert len(marked) == len(ELSEWHERE)
    for block in marked:
        assert {other.body for other in marked if other.mark == block.mark} == {block.body}
    page, test = FOLLOWED
    assert f'"{page.rpartition("/")[2]}"' in (ROOT / test).read_text()
