"""Profiles with a part that does not read, or that nobody knows: what the commands make of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnctl.profile.places import bundled_folder
from tests.commands.running import run
from tests.profile.factory import profile, write

ON = ("--machine", "h100")


pytestmark = pytest.mark.usefixtures("own")


def test_what_has_no_place_in_an_answer_is_said_beside_it(document: Path, tmp_path: Path) -> None:
    """An entry that does not read is one warning, never just missing."""
    broken = json.loads(document.read_text())
    broken["entries"][0]["points"][0]["batch"] = 0
    other = tmp_path / "b.json"
    other.write_text(json.dumps(broken))
    for line in (
        ("diff", str(document), str(other)),
        ("diff", str(other), str(document), "--json"),
    ):
        found = run("profile", *line)
        assert (found.code, found.err.count("entries[0] is left out")) == (1, 1)
    for option in ("--json", "--rejected"):
        found = run("profile", "show", str(other), option)
        assert (found.code, found.err.count("entries[0] is left out")) == (0, 1)
    assert len(run("profile", "show", str(other), "--json").json["entries"]) == 2
    found = run("profile", "show", str(other))
    assert (found.out.count("entries[0] is left out"), found.err) == (1, "")


def test_a_version_that_could_not_be_told_stays_so(document: Path, own: Path) -> None:
    """No command makes of a profile that is stale everywhere one that is valid everywhere."""
    unknown = json.loads(document.read_text())
    unknown["versions"]["triton"] = "unknown"
    unknown["entries"].append({})
    document.write_text(json.dumps(unknown))
    for line in (("merge", str(document)), ("import", str(document))):
        found = run("profile", *line)
        assert (found.code, found.out) == (2, "")
        assert "versions.triton is unknown" in found.err
    assert "pruned" in run("profile", "prune", str(document)).out
    (one,) = run("profile", "validate", str(document), *ON, "--json").json
    assert (one["status"], one["problems"]) == ("stale", [])
    assert run("profile", "show", str(document), "--json").json["versions"]["triton"] == "unknown"
    own.mkdir(parents=True)
    (own / "x.json").write_bytes(document.read_bytes())
    found = run("profile", "export", "-", *ON)
    assert (found.code, found.out) == (2, "")


def test_what_cannot_be_deleted_keeps_nothing_else(document: Path, own: Path) -> None:
    """A folder of a profile's name is named; the others are deleted, and said to be."""
    run("profile", "import", str(document))
    (own / "a.json").mkdir()
    (own / "z.json").symlink_to("z.json")
    found = run("profile", "forget", "--all")
    assert (found.code, found.out.count(": deleted\n")) == (2, 2)
    assert found.err.endswith("a.json cannot be deleted: Is a directory\n")
    assert [one.name for one in own.iterdir() if one.suffix == ".json"] == ["a.json"]


def test_a_shipped_profile_is_rewritten_only_as_a_file() -> None:
    """Its name alone, which may be meant as one's own, changes nothing of the installed package."""
    shipped = bundled_folder() / "h200.json"
    before = shipped.read_bytes()
    found = run("profile", "prune", "h200")
    assert (found.code, found.out) == (2, "")
    assert "h200.json is shipped with attnctl" in found.err
    assert run("profile", "prune", "h200", "--dry-run").code == 0
    assert shipped.read_bytes() == before


@pytest.mark.parametrize("version", ["1.", "1.x", "1.-2", "1.\u0664", "01", "-1", " 1", ""])
def test_a_version_that_is_none_is_refused(version: str, document: Path) -> None:
    """Only digits name a newer minor version."""
    text = document.read_text().replace("attnctl.profile/1", f"attnctl.profile/{version}")
    document.write_text(text, encoding="utf-8")
    found = run("profile", "show", str(document))
    assert (found.code, found.out) == (2, "")
    assert "and this attnctl reads attnctl.profile/1" in found.err


def test_a_newer_documents_keys_are_not_lost_by_adding_to_it(document: Path, own: Path) -> None:
    """It is read for what is known, and never written by who does not know the rest."""
    run("profile", "import", str(document))
    (kept,) = own.glob("*.json")
    text = document.read_text().replace('"attnctl.profile/1"', '"attnctl.profile/1.4", "new": [1]')
    for path in (kept, document):
        path.write_text(text)
    broken = document.with_name("broken.json")
    broken.write_text(text.replace('"entries": [', '"entries": [{},', 1))
    for line, path in (
        (("import", str(broken.with_name("other.json"))), kept),
        (("prune", str(broken)), broken),
    ):
        write(broken.with_name("other.json"), profile("llama-3.1-8b"))
        before = path.read_bytes()
        found = run("profile", *line)
        assert found.code == 2
        assert "what it does not know would be lost; upgrade attnctl" in found.err
        assert path.read_bytes() == before
    assert run("profile", "show", str(document)).code == 0
