"""Shell completion: what bash, zsh and fish are told, and a real bash that completes by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import ROOT


def told(shell: str, line: str) -> str:
    """What the program says to a shell in which this line was typed up to the tabulator."""
    variables = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    found = subprocess.run(
        [sys.executable, "-m", "attnctl"],
        cwd=ROOT,
        env={**os.environ, "_ATTNCTL_COMPLETE": f"complete_{shell}", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stderr == ""
    return found.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_told_commands_options_and_names(shell: str) -> None:
    """Of a command, of a verb, of an option, and of values that are known beforehand."""
    for line, expected, other in (
        ("attnctl pro", "profile", "select"),
        ("attnctl profile ", "merge", "select"),
        ("attnctl select --mac", "--machine", "--model"),
        ("attnctl select --machine h2", "h200", "h100"),
        ("attnctl select --backend mla=FLASHM", "mla=FLASHMLA", "TRITON"),
        ("attnctl list GDN", "GDN_ATTN", "FLASH"),
        ("attnctl smoke --op mam", "mamba2", "paged"),
        ("attnctl tune --workload lo", "long-context", "chat"),
        ("attnctl warm --profile h2", "h200", "zen3"),
        ("attnctl explain kv_", "kv_cache_dtype", "platform"),
        ("attnctl profile show --machine zen", "zen4", "h100"),
    ):
        words = told(shell, line)
        assert expected in words, line
        assert other not in words, line


def test_a_name_that_is_none_is_left_to_the_shell() -> None:
    """A file may be meant: nothing is said, and nothing fails."""
    for line in ("attnctl select --machine ./my", "attnctl select --backend ZZ"):
        assert told("bash", line).strip() == ""


def test_a_real_bash_completes(tmp_path: Path) -> None:
    """The script that is to stand in ~/.bashrc makes a function, and that gives the words."""
    program = tmp_path / "attnctl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attnctl "$@"\n')
    program.chmod(0o755)
    script = """
eval "$(_ATTNCTL_COMPLETE=source_bash attnctl)"
complete -p attnctl
COMP_WORDS=(attnctl select --machine mi3) COMP_CWORD=3
_attnctl_completion attnctl
echo "${COMPREPLY[@]}"
"""
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    ended = subprocess.run(
        ["bash", "-eu", "-c", script],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    registered, words = ended.stdout.splitlines()
    assert "-F _attnctl_completion attnctl" in registered
    assert words.split() == ["mi300x", "mi325x", "mi355x"]
