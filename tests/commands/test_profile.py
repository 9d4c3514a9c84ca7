"""`attnctl profile`: documents in, out and compared, as a person would."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from attnctl.cli import LazyGroup
from attnctl.commands.profile import VERBS
from attnctl.profile.keys import Versions
from tests.commands.running import LLAMA, ROOT, run
from tests.profile.factory import GRID, profile, write

ON = ("--machine", "h100")


pytestmark = pytest.mark.usefixtures("own")


def test_every_verb_has_a_module_and_shows_its_help() -> None:
    """The table and the modules agree."""
    for verb in VERBS:
        found = run("profile", verb, "--help")
        assert found.code == 0
        assert f"attnctl profile {verb}" in found.out
        assert "Exit codes:" in found.out
    assert LazyGroup.verbs is not VERBS


def test_a_misspelt_verb_is_one_sentence() -> None:
    """With the nearest."""
    found = run("profile", "exprot")
    assert (found.code, found.out) == (2, "")
    assert "Did you mean export?" in found.err


def test_nothing_measured_says_how_to_measure() -> None:
    """Exit 1, and the command's name."""
    found = run("profile", "export", "-", *ON)
    assert (found.code, found.out) == (1, "")
    assert "attnctl tune --model config.json" in found.err


def test_list_names_each_with_its_device_and_whether_it_fits(document: Path) -> None:
    """As a table and as JSON."""
    run("profile", "import", str(document))
    found = run("profile", "list", *ON)
    assert found.code == 0
    assert "mine" in found.out
    assert "nvidia sm_90 10de:2330, 132 units" in found.out
    rows = run("profile", "list", "--machine", "mi300x", "--json").json["profiles"]
    (row,) = [row for row in rows if row["name"] == "mine"]
    assert (row["origin"], row["status"], row["shapes"]) == ("user", "foreign", 3)


def test_show_gives_the_document_as_it_is_written(document: Path) -> None:
    """--json is the canonical form, the screen has a table per shape."""
    assert run("profile", "show", str(document), "--json").out.encode() == document.read_bytes()
    out = run("profile", "show", str(document)).out
    assert "paged 32/8 heads of 128, bfloat16: 1." in out
    assert "decode.warps=8 segments=32" in out


def test_show_without_a_file_says_which_profile_serves_which_shape(document: Path) -> None:
    """One's own hides nothing where nothing is shipped for the device."""
    assert run("profile", "show", *ON).code == 1
    run("profile", "import", str(document))
    found = run("profile", "show", "--origin", *ON)
    assert found.code == 0
    assert found.out.count("mine (your own)") == 3
    rows = run("profile", "show", *ON, "--json").json["layers"]
    assert [len(row["entry"]["points"]) for row in rows] == [18, 18, 18]
    named = run("profile", "show", "mine", "--origin")
    assert named.code == 2


def test_validate_tells_good_from_dead_from_damaged(document: Path) -> None:
    """Exit 0, 1 and 2."""
    good = run("profile", "validate", str(document), *ON)
    assert good.code == 0
    assert "valid on h100: 54 points used" in good.out
    dead = json.loads(document.read_text())
    dead["entries"][0]["kernels"]["TRITON_ATTN"] = "0123456789abcdef"
    document.write_text(json.dumps(dead))
    found = run("profile", "validate", str(document), *ON, "--json")
    assert found.code == 1
    (one,) = found.json
    assert [("are dead" in problem) for problem in one["problems"]] == [True]
    document.write_text("[]")
    assert run("profile", "validate", str(document), *ON).code == 2


def test_prune_takes_the_dead_timings_out(document: Path) -> None:
    """Not on a dry run; afterwards the file is good."""
    dead = json.loads(document.read_text())
    dead["entries"][0]["kernels"]["TRITON_ATTN"] = "0123456789abcdef"
    document.write_text(json.dumps(dead))
    before = document.read_bytes()
    assert "not written" in run("profile", "prune", "--dry-run", str(document)).out
    assert document.read_bytes() == before
    assert "pruned" in run("profile", "prune", str(document)).out
    assert run("profile", "validate", str(document), *ON).code == 0
    assert "nothing to prune" in run("profile", "prune", str(document)).out


def test_diff_and_merge_answer_by_exit_code(document: Path, tmp_path: Path) -> None:
    """Equal picks 0, others 1, two devices 2."""
    other = write(tmp_path / "o.json", profile("llama-3.1-8b", faster={"TRITON_ATTN": 0.1}))
    foreign = write(tmp_path / "f.json", profile(on="h200"))
    assert run("profile", "diff", str(document), str(document)).code == 0
    found = run("profile", "diff", str(document), str(other))
    assert found.code == 1
    assert "not there" in found.out
    both = tmp_path / "both.json"
    assert run("profile", "merge", str(document), str(other), "-o", str(both)).code == 0
    assert len(json.loads(both.read_text())["entries"]) == 3
    assert run("profile", "merge", str(document), str(foreign)).code == 2


def test_verify_needs_no_device(document: Path) -> None:
    """On its own machine good, on another not."""
    good = run("profile", "verify", str(document), *ON)
    assert good.code == 0
    assert good.last_line == "mine on h100: every pick comes out again [valid]"
    models = ("--model", LLAMA)
    assert run("profile", "verify", str(document), *ON, *models).code == 0
    assert run("profile", "verify", str(document), "--machine", "h200").code == 1


def test_the_schema_is_the_published_one(document: Path) -> None:
    """And a document fits it."""
    found = run("profile", "schema")
    published = ROOT / "docs" / "schema" / "profile.schema.json"
    assert found.out == published.read_text()
    assert found.json["$id"] == "urn:attnctl:profile/1"
    jsonschema.validate(json.loads(document.read_text()), found.json)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("profile-check", ("validate", "FILE")),
        ("profile-diff", ("diff", "FILE", "OTHER")),
        ("profile-layers", ("show", *ON)),
        ("profile-list", ("list", *ON)),
        ("profile-verify", ("verify", "FILE", *ON)),
    ],
)
def test_answers_fit_their_published_schemas(
    document: Path, name: str, words: tuple[str, ...]
) -> None:
    """Whatever is printed under --json."""
    run("profile", "import", str(document))
    other = write(document.with_name("o.json"), profile(faster={"TRITON_ATTN": 0.1}))
    files = {"FILE": str(document), "OTHER": str(other)}
    answer = run("profile", *(files.get(word, word) for word in words), "--json").json
    schema = json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text())
    for one in answer if isinstance(answer, list) else [answer]:
        jsonschema.validate(one, schema)
        assert one["schema"] == schema["$id"].replace("urn:attnctl:", "attnctl.")


def test_select_finds_what_was_imported_and_shows_the_map(document: Path) -> None:
    """From the user's folder, without an option."""
    run("profile", "import", str(document))
    asked = ("select", "--model", LLAMA, *ON)
    report = run(*asked, "--map", "--sweep", "context=1..131072,batch=8", "--json").json
    (group,) = report["groups"]
    assert (group["timed_by"], len(group["map"])) == ("mine", len(GRID))
    assert group["sweep"][0]["first"] == 1
    assert group["sweep"][-1]["last"] == 131072
    assert report["profile"]["origin"] == "user"
    out = run(*asked, "--map").out
    assert " over FLASH" in out or "over TRITON" in out
    assert "[valid, your own]" in out
    plain = run(*asked, "--profile", "none", "--json").json
    assert (plain["profile"], plain["groups"][0]["timed_by"]) == (None, None)


def test_a_stale_profile_is_one_note_and_its_field_is_named(tmp_path: Path) -> None:
    """Torch and Triton together."""
    stale = msgspec.structs.replace(profile(), versions=Versions(torch="2.1", triton="3.1"))
    path = write(tmp_path / "s.json", stale)
    out = run("select", "--model", LLAMA, *ON, "--profile", str(path)).out
    (note,) = [line for line in out.splitlines() if line.startswith("note:")]
    assert note.startswith("note: the profile invented is stale, and used all the same: ")
    assert "torch 2.1, triton 3.1, here is 2.14.0+cu130, 3.8.0" in note


@pytest.mark.parametrize("option", ["--map", "--sweep=context=1..8"])
def test_the_map_of_many_machines_is_for_json(option: str) -> None:
    """A screen has no room for it."""
    asked = ("select", "--model", LLAMA, "--machine", "h100", "--machine", "h200", option)
    assert run(*asked).code == 2
    assert run(*asked, "--json").code == 0


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize(
    "words", [("show",), ("validate",), ("verify",), ("list",), ("diff",)], ids=" ".join
)
def test_no_screen_overruns_its_terminal(
    document: Path, words: tuple[str, ...], width: int
) -> None:
    """Narrow terminals wrap, pipes do not."""
    run("profile", "import", str(document))
    files = {"show": [str(document)], "validate": [str(document)], "verify": [str(document)]}
    other = write(document.with_name("o.json"), profile(name="other", faster={"TRITON_ATTN": 2.0}))
    files["diff"] = [str(document), str(other)]
    device = ON if words[0] in ("validate", "verify", "list") else ()
    found = run("profile", *words, *files.get(words[0], []), *device, width=width)
    assert found.code in (0, 1)
    assert max(map(len, found.out.splitlines())) <= width


@pytest.mark.parametrize("options", [("-o",), ("--png",), ("-o", "--png")])
def test_a_page_never_takes_the_place_of_its_profile(
    document: Path, options: tuple[str, ...]
) -> None:
    """The timings stay as they were, whatever the output is called."""
    before = document.read_bytes()
    words = [word for option in options for word in (option, str(document))]
    found = run("profile", "report", str(document), *words)
    assert found.code == 2
    assert "it is the profile itself; name another file" in found.err
    assert document.read_bytes() == before


def test_a_page_and_a_picture_go_to_two_files(document: Path, tmp_path: Path) -> None:
    """One would overwrite the other."""
    both = tmp_path / "both"
    found = run("profile", "report", str(document), "-o", str(both), "--png", str(both))
    assert found.code == 2
    assert "--output writes the page there; name another file" in found.err
    assert not both.exists()


@pytest.mark.parametrize(("verb", "code"), [("validate", 1), ("prune", 0)])
def test_a_file_that_nobody_named_and_that_does_not_read_hides_no_other(
    document: Path, own: Path, verb: str, code: int
) -> None:
    """It is one sentence on stderr, and those that come after it are dealt with."""
    own.mkdir(parents=True)
    (own / "a.json").write_bytes(b"\x00")
    document.rename(own / "b.json")
    found = run("profile", verb)
    assert found.code == code
    assert f"{own / 'a.json'}: not a profile" in found.err
    assert len(found.err.splitlines()) == 1
    assert str(own / "b.json") in found.out


def test_versions_that_nobody_knows_are_said_once() -> None:
    """Packages that are assumed have no versions, and the profile stays of use."""
    words = ("--machine", "h200", "--assume-installed", "torch,triton,flash_attn_3")
    shown = run("select", "--model", LLAMA, *words).out
    (note,) = [line for line in shown.splitlines() if " is stale" in line]
    assert note.endswith("; of what is here that is not known")
    assert note.count("not known") == 1
