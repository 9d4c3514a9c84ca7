"""The command line as a whole: help, versions, errors and exit codes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from io import StringIO

import pytest

from attnctl import __version__
from attnctl.cli import COMMANDS, build, run
from attnctl.commands.profile import VERBS
from attnctl.render.output import Output
from tests.commands.running import LLAMA, ROOT
from tests.commands.running import run as answer


def test_help_names_every_command_and_gives_examples() -> None:
    """`--help` lists each command with its line, examples and the exit codes."""
    found = answer("--help")
    assert found.code == 0
    for name, line in COMMANDS.items():
        assert f"{name}  " in found.out
        assert line in found.out
    assert "attnctl select --model config.json" in found.out
    assert "Exit codes:" in found.out


EVERY_COMMAND = [*COMMANDS, *(f"profile {verb}" for verb in VERBS)]


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_has_help_with_examples(name: str) -> None:
    """`attnctl COMMAND -h` shows usage, examples and what its exit codes mean, in 80 columns."""
    found = answer(*name.split(), "-h")
    assert found.code == 0
    assert f"Usage: attnctl {name}" in found.out
    assert "Examples:" in found.out
    assert "Exit codes: 0" in found.out
    assert max(map(len, found.out.splitlines())) <= 80
    assert max(map(len, answer("--help").out.splitlines())) <= 80


@pytest.mark.parametrize("columns", [32, 40, 60])
@pytest.mark.parametrize("name", ["", "profile", *EVERY_COMMAND])
def test_help_fits_a_narrow_terminal(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is wider, and nothing of the usual help is lost."""
    usual = answer(*name.split(), "-h").out
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = answer(*name.split(), "-h").out
    assert max(map(len, shown.splitlines())) <= columns
    assert "".join(shown.split()) == "".join(usual.split())


@pytest.mark.parametrize("name", ["", *EVERY_COMMAND])
def test_every_example_of_a_help_is_understood(name: str) -> None:
    """Its commands and options exist and take such values; words in brackets are remarks."""
    shown = answer(*name.split(), "-h").out
    examples = re.findall(r"^ +(attnctl .*?)(?: {2,}\(.*)?$", shown, re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" | ")[0].partition(" > ")[0])[1:]
        command, path = build(), "attnctl"
        while hasattr(command, "list_commands"):
            path = f"{path} {words[0]}"
            command = command.get_command(None, words.pop(0))
            assert command is not None, path
        assert command.make_context(path, words) is not None


def test_version_is_the_package_version() -> None:
    """`--version` prints the name and the version, and nothing else."""
    assert answer("--version") == (0, f"attnctl {__version__}\n", "")


def test_no_command_shows_help_and_is_wrong_usage() -> None:
    """`attnctl` alone explains itself and exits 2."""
    found = answer()
    assert found.code == 2
    assert "Usage: attnctl" in found.out + found.err


def test_a_misspelt_command_is_met_with_the_nearest_one() -> None:
    """`attnctl selct` exits 2 and asks whether select was meant."""
    found = answer("selct")
    assert found.code == 2
    assert "Did you mean select?" in found.err


def test_a_misspelt_option_is_wrong_usage() -> None:
    """An unknown option exits 2 without a traceback."""
    found = answer("select", "--model", LLAMA, "--jsn")
    assert found.code == 2
    assert "--jsn" in found.err
    assert "Traceback" not in found.err


def test_an_input_error_is_one_sentence_on_stderr() -> None:
    """A file that does not exist is one line on stderr, nothing on stdout, exit 2."""
    found = answer("select", "--model", "no-such.json", "--machine", "h200")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("attnctl: ")
    assert found.err.count("\n") == 1
    assert "no-such.json" in found.err


def test_debug_shows_where_an_error_came_from() -> None:
    """`--debug` prints the traceback before the sentence."""
    found = answer("--debug", "select", "--model", "no-such.json", "--machine", "h200")
    assert found.code == 2
    assert "Traceback" in found.err
    assert found.err.splitlines()[-1].startswith("attnctl: ")


def test_an_unforeseen_error_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """An exception that nobody expected is one sentence that says how to report it, exit 2."""

    class Broken(Output):
        def json(self, value: object) -> None:
            raise ZeroDivisionError("a bug")

    code = run(("probe", "--machine", "h200", "--json"), Broken(StringIO()))
    err = capsys.readouterr().err
    assert code == 2
    assert "ZeroDivisionError: a bug" in err
    assert "report" in err
    assert err.count("\n") == 1


def test_an_interrupt_exits_130(capsys: pytest.CaptureFixture[str]) -> None:
    """Control-C ends a command quietly with the shell's code for it."""

    class Interrupted(Output):
        def json(self, value: object) -> None:
            raise KeyboardInterrupt

    assert run(("probe", "--machine", "h200", "--json"), Interrupted(StringIO())) == 130
    assert capsys.readouterr().err == ""


def test_python_dash_m_is_the_same_program() -> None:
    """`python -m attnctl --version` answers as the script does."""
    run_ = subprocess.run(
        [sys.executable, "-m", "attnctl", "--version"],
        cwd=ROOT,
        env={**os.environ, "ATTNCTL_DEBUG": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run_.stdout == f"attnctl {__version__}\n"
