"""What strange paths and streams are answered with; what is refused is in tests/faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.machines import load
from tests.commands.running import LLAMA, ROOT, run

PROBE = ("probe", "--machine", "h200")


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
