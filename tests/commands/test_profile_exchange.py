"""`attnctl profile export` and `import`: what was measured, handed on and taken in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.running import run
from tests.profile.factory import profile, write

ON = ("--machine", "h100")

pytestmark = pytest.mark.usefixtures("own")


def test_export_forget_and_import_round_trip_byte_for_byte(document: Path, tmp_path: Path) -> None:
    """What was there is there again."""
    assert run("profile", "import", str(document)).code == 0
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    assert run("profile", "export", str(first), *ON).code == 0
    assert run("profile", "forget", *ON).out.endswith("deleted\n")
    assert run("profile", "export", str(second), *ON).code == 1
    assert not second.exists()
    assert run("profile", "import", str(first)).code == 0
    assert run("profile", "export", str(second), *ON).code == 0
    assert first.read_bytes() == second.read_bytes() == document.read_bytes()


def test_export_goes_to_standard_output_under_another_name(document: Path) -> None:
    """For a pipe."""
    run("profile", "import", str(document))
    found = run("profile", "export", "-", "--name", "theirs", *ON)
    assert found.json["name"] == "theirs"


def test_an_import_leaves_a_broken_entry_out_and_says_so(document: Path) -> None:
    """The rest is kept."""
    broken = json.loads(document.read_text())
    broken["entries"][0]["points"][0]["batch"] = 0
    document.write_text(json.dumps(broken))
    found = run("profile", "import", str(document))
    assert found.code == 1
    assert "entries[0] is left out" in found.err
    assert "2 shapes, 36 points of mine" in found.out


def test_an_import_shows_a_name_without_what_would_steer_the_terminal(tmp_path: Path) -> None:
    """A document from elsewhere may call itself anything; it is one line all the same."""
    odd = write(tmp_path / "odd.json", profile("llama-3.1-8b", name="a\x1b[31mb\nc"))
    found = run("profile", "import", str(odd))
    assert found.code == 0
    assert found.out.endswith(" of a [31mb c\n")
    assert found.out.count("\n") == 1


def test_an_import_onto_a_damaged_file_of_ones_own_says_what_to_do(
    document: Path, own: Path
) -> None:
    """Nothing is written over it; the sentence names the file and the way out."""
    assert run("profile", "import", str(document)).code == 0
    (file,) = own.glob("*.json")
    file.write_bytes(b"{half")
    answer = run("profile", "import", str(document))
    assert answer.code == 2
    assert answer.err.startswith(f"attnctl: {file}: not a profile")
    assert "move that file away and import again" in answer.err
    assert file.read_bytes() == b"{half"


def test_import_refuses_a_newer_major_version_with_a_hint(document: Path, own: Path) -> None:
    """Version 99 may mean anything; a newer minor one is read."""
    text = document.read_text()
    document.write_text(text.replace("attnctl.profile/1", "attnctl.profile/99"))
    found = run("profile", "import", str(document))
    assert found.code == 2
    assert "upgrade attnctl" in found.err
    assert not own.exists()
    document.write_text(text.replace('"attnctl.profile/1"', '"attnctl.profile/1.4", "new": [1]'))
    assert run("profile", "import", str(document)).code == 0
