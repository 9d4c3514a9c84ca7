"""Command lines and surroundings that mean harm: one sentence each, an exit code, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.machines import load
from tests.commands.running import LLAMA, ROOT, run

ON = ("--model", LLAMA, "--machine", "h200")
PROBE = ("probe", "--machine", "h200")
SMOKE = ("smoke", "--backend", "CPU_ATTN")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        # what has no end
        (("select", "--model", "/dev/zero"), "/dev/zero is larger than 16 MiB; that is no config"),
        (("select", "--model", LLAMA, "--machine", "/dev/zero"), "that is no machine file"),
        (("select", *ON, "--profile", "/dev/zero"), "that is no profile"),
        (("probe", "--replay", "/dev/zero"), "that is no tape"),
        ((*PROBE, "--diff", "/dev/zero"), "that is no machine file"),
        # a value that is empty was given all the same
        (("select", "--model", ""), "The value of --model is empty"),
        (("select", *ON, "--profile", ""), "The value of --profile is empty"),
        (("select", *ON, "--explain", ""), "The value of --explain is empty"),
        (("select", *ON, "--engine", ""), "The value of --engine is empty"),
        (("select", *ON, "--engine-version", ""), "The value of --engine-version is empty"),
        (("select", *ON, "--assume-installed", ""), "The value of --assume-installed is empty"),
        (("select", *ON, "--backend", "FLASH_ATTN", "--backend", ""), "The value of --backend is"),
        ((*PROBE, "--save", ""), "The value of --save is empty"),
        ((*PROBE, "--diff", ""), "The value of --diff is empty"),
        (("probe", "--record", ""), "The value of --record is empty"),
        (("probe", "--replay", ""), "The value of --replay is empty"),
        ((*SMOKE, "--junit", ""), "The value of --junit is empty"),
        (("list", ""), "The value of BACKEND is empty"),
        (("explain", ""), "The value of CODE|BACKEND is empty"),
        # numbers that are no limit
        ((*SMOKE, "--timeout", "inf"), "--timeout inf: must be more than 0 and at most 86400"),
        ((*SMOKE, "--timeout", "1e300"), "--timeout 1e+300: must be more than 0"),
        ((*SMOKE, "--timeout", "nan"), "--timeout nan: must be more than 0"),
        ((*SMOKE, "--timeout", "0"), "--timeout 0: must be more than 0"),
        ((*SMOKE, "--timeout", "-1"), "--timeout -1: must be more than 0"),
        # two answers in one place
        ((*PROBE, "--save", "-", "--json"), "--save and --json would both fill standard output"),
        ((*PROBE, "--save", "-", "--diff", "h100"), "--save and --diff would both fill"),
        (("probe", "--save", "-", "--record", "-"), "--save and --record both name -"),
        ((*SMOKE, "--junit", "-", "--json"), "--junit and --json would both fill standard output"),
        (("select", "--model", "-", "--model", "-"), "standard input can be read once"),
        # wrong usage, whoever finds it
        (("select", *ON, "--jsn"), "No such option: --jsn"),
        (("select", "--machine", "h200"), "Missing option '--model' / '-m'."),
        (("select", *ON, "--tp", "x"), "Invalid value for '--tp': 'x' is not a valid int"),
        (("select", *ON, "--tp", "0"), "--tp 0: must be 1 or more"),
        (("select", *ON, "--tp"), "Option '--tp' requires an argument. See: attnctl"),
        (("select", *ON, "spare"), "Got unexpected extra argument(s) (spare). See: attnctl select"),
        (("select", *ON, "--backend", "full="), "--backend: no backend of that name"),
        (("select", *ON, "--backend", "NO_SUCH"), "--backend NO_SUCH: no backend of that name"),
        (("select", *ON, "--explain", "NO_SUCH"), "--explain NO_SUCH: no backend of that name"),
        ((*PROBE, "--record", "x"), "--machine asks nothing: leave out --record and --replay"),
        (("selct",), "No such command 'selct'. Did you mean select? See: attnctl --help"),
        (("profile", "export"), "Missing argument 'FILE'. See: attnctl profile export --help"),
    ],
)
def test_each_fault_is_one_line_and_exits_2(words: tuple[str, ...], sentence: str) -> None:
    """One line on standard error in one spelling, nothing on standard output."""
    found = run(*words)
    assert sentence in found.err
    assert found.err.startswith("attnctl: ")
    assert found.err.count("\n") == 1
    assert (found.code, found.out) == (2, "")


SELECT = ("select", *ON, "--json")


@pytest.mark.parametrize(
    ("redirected", "words", "sentence"),
    [
        (">&-", SELECT, "standard output is closed, so that no answer can be written"),
        (">&-", ("--help",), "standard output is closed"),
        (">/dev/full", SELECT, "standard output cannot be written: No space left on device"),
        (">/dev/full", ("--help",), "standard output cannot be written"),
        (">/dev/full", ("select", "--help"), "standard output cannot be written"),
        (">/dev/full", ("--version",), "standard output cannot be written"),
        ("<&-", ("select", "--model", "-", "--machine", "h200"), "standard input is closed"),
        ("2>&-", ("select", *ON, "--tp", "0"), ""),
        ("2>/dev/full", ("select", *ON, "--tp", "0"), ""),
        ("<&- >&- 2>&-", SELECT, ""),
    ],
)
def test_a_stream_that_is_closed_or_full_is_one_sentence(
    redirected: str, words: tuple[str, ...], sentence: str
) -> None:
    """Exit code 2 with the reason, or with silence where standard error itself is gone."""
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "attnctl", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert sentence in found.stderr
    assert found.stderr.count("\n") == (1 if sentence else 0)


def test_an_answer_with_standard_error_closed_is_whole() -> None:
    """No file that the command opens takes standard error's number."""
    found = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "attnctl", *SELECT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0
    assert json.loads(found.stdout)["schema"].startswith("attnctl.")


@pytest.mark.parametrize("form", ["--json", ""])
def test_a_path_of_other_bytes_is_shown(tmp_path: Path, form: str) -> None:
    """A file name that is not UTF-8 is legal: its odd byte is a question mark, in text a blank."""
    path = f"{tmp_path}/b\udcff.json"
    Path(path).write_text(Path(LLAMA).read_text())
    found = run("select", "--model", path, "--machine", "h200", *filter(None, [form]))
    assert (found.code, found.err) == (0, "")
    if form:
        assert found.json["model"]["path"] == f"{tmp_path}/b?.json"


def test_a_difference_from_a_path_of_other_bytes_is_shown(tmp_path: Path) -> None:
    """Every document that holds a path can be written, not that of a selection alone."""
    path = f"{tmp_path}/\udcfe.json"
    assert run(*PROBE, "--save", path).code == 0
    found = run(*PROBE, "--diff", path, "--json")
    assert (found.code, found.json["old"]) == (0, f"{tmp_path}/?.json")


def test_an_interrupt_during_the_imports_is_quiet() -> None:
    """Control-C before the first command is known exits 130 without a traceback."""
    program = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'attnctl.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from attnctl.__main__ import main\n"
        "main()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
def test_a_machine_file_saved_to_standard_output_is_all_of_it(path: str) -> None:
    """`--save -` can be piped on: no view beside it, and no file of that name."""
    found = run(*PROBE, "--save", path)
    assert (found.code, found.err) == (0, "")
    assert found.json["name"] == load("h200").name
    assert not (Path.cwd() / "-").exists()


def test_a_tape_recorded_to_standard_output_is_all_of_it() -> None:
    """`--record -` is the tape and nothing else."""
    tape = ROOT / "tests" / "machines" / "nvidia-no-driver.tape.json"
    found = run("probe", "--replay", str(tape), "--record", "-")
    assert (found.code, found.err) == (0, "")
    assert found.json["schema"].startswith("attnctl.tape/")


def test_standard_output_that_is_the_file_is_not_replaced(tmp_path: Path) -> None:
    """`probe --save x > x` leaves the machine file in x, whole."""
    path = tmp_path / "x.json"
    with path.open("wb") as file:
        words = [sys.executable, "-m", "attnctl", *PROBE, "--save", str(path)]
        subprocess.run(words, cwd=ROOT, stdout=file, check=True)
    assert load(str(path)).name == "h200"


@pytest.mark.parametrize(
    ("one", "other"), [("--save", "--record"), ("--save", "--replay"), ("--record", "--diff")]
)
def test_one_file_is_not_two_things(tmp_path: Path, one: str, other: str) -> None:
    """Two options of one file, under whichever names: exit 2, and the file is as it was."""
    path = tmp_path / "x.json"
    path.write_text("kept")
    (tmp_path / "link").symlink_to(path)
    found = run("probe", one, str(path), other, str(tmp_path / "link"))
    assert found.code == 2
    assert f"{one} and {other} both name {path}" in found.err
    assert path.read_text() == "kept"


def test_one_new_file_is_not_two_things(tmp_path: Path) -> None:
    """The same where no file is there yet."""
    found = run("probe", "--save", f"{tmp_path}/x", "--record", f"{tmp_path}/./x")
    assert found.code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_from_the_file_before_it_is_replaced(tmp_path: Path) -> None:
    """`--diff x --save x` compares with the old x, then updates it."""
    path = str(tmp_path / "x.json")
    assert run("probe", "--machine", "h100", "--save", path).code == 0
    assert run(*PROBE, "--diff", path, "--save", path).code == 1
    assert load(path).name == "h200"
