"""`attnctl report`: one archive that says what happened, and names nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from attnctl.bug_report.archive import BugReport, Part, archive, bug_report
from attnctl.bug_report.private_names import PrivateNames
from attnctl.exits import InputError
from attnctl.smoke.request import Request
from tests.commands.running import LLAMA, ROOT, run

NAMES = ["about.json", "tape.json", "machine.json", "libraries.json", "list.json"]
PLANTED = {
    "USER": "wilhelmina",
    "LOGNAME": "wilhelmina",
    "HOSTNAME": "topsecretbox.lab.example",
    "HF_TOKEN": "hf_" + "q" * 30,
    "SOME_API_KEY": "open-sesame-77",
}


def parts(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist()}


def test_it_holds_the_probe_the_registry_the_decisions_and_the_profiles(tmp_path: Path) -> None:
    """In this order; what is printed names each with its size."""
    path = tmp_path / "bug.zip"
    found = run("report", "--model", LLAMA, "-m", LLAMA, "-o", str(path))
    held = parts(path)
    assert found.code == 0
    assert list(held) == [*NAMES, "select-1.json", "select-2.json", "profiles.json"]
    for name in held:
        assert f"\n{name} " in found.out
    about = held["about.json"]
    assert about["command"][:3] == ["attnctl", "report", "--model"]
    assert set(about["versions"]) == {"attnctl", "python", "system", "packages"}
    assert list(about["parts"]) == list(held)[1:]
    assert about["left_out"] == []
    assert held["select-1.json"]["groups"][0]["candidates"]
    assert {row["name"] for row in held["list.json"]["rows"]} >= {"CPU_ATTN", "TRITON_ATTN"}


def test_its_machine_and_tape_are_of_use_elsewhere(tmp_path: Path) -> None:
    """The documents fit their schemas, the tape replays, and select takes the machine."""
    path = tmp_path / "bug.zip"
    assert run("report", "-o", str(path)).code == 0
    for name in ("machine", "tape"):
        schema = json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text())
        document = parts(path)[f"{name}.json"]
        jsonschema.validate(document, schema)
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    replayed = run("probe", "--replay", str(tmp_path / "tape.json"), "--json").json
    assert replayed["cpu"] == parts(path)["machine.json"]["cpu"]
    machine = str(tmp_path / "machine.json")
    assert run("select", "--model", LLAMA, "--machine", machine, "--json").code in (0, 1)


def test_nothing_that_names_a_person_a_host_or_a_secret_gets_through(tmp_path: Path) -> None:
    """Planted in the home folder, the model's path, the environment, and broken JSON."""
    home = tmp_path / "wilhelmina"
    models = home / "hush-project"
    models.mkdir(parents=True)
    shutil.copy(LLAMA, models / "config.json")
    broken = models / "wilhelmina-on-topsecretbox.json"
    broken.write_text('{"model_type": "open-sesame-77 wilhelmina", ')
    words = ("report", "--model", str(models), "-m", str(broken), "-o", str(home / "bug.zip"))
    found = subprocess.run(
        [sys.executable, "-m", "attnctl", *words],
        cwd=home,
        env={**os.environ, **PLANTED, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stderr
    with zipfile.ZipFile(home / "bug.zip") as file:
        held = file.namelist()
        text = "".join(held) + "".join(file.read(name).decode() for name in held).lower()
    for private in ("wilhelmina", "topsecretbox", "hush-project", "qqqqqq", "open-sesame", "hf_q"):
        assert private not in text, private
    assert str(tmp_path).lower() not in text
    assert str(ROOT).lower() not in text
    assert "select-2.json" not in held


def test_what_cannot_be_made_is_in_the_report_as_its_error(tmp_path: Path) -> None:
    """A model that cannot be read may be the bug: the rest is there, and exit code 1 says so."""
    config, path = tmp_path / "config.json", tmp_path / "bug.zip"
    config.write_text("{")
    found = run("report", "--model", str(config), "-o", str(path))
    held = parts(path)
    assert found.code == 1
    assert list(held) == [*NAMES, "profiles.json"]
    (left_out,) = held["about.json"]["left_out"]
    assert left_out["name"] == "select-1.json"
    assert left_out["error"].startswith("InputError: ")
    assert left_out["traceback"][0].startswith("Traceback")
    assert "left out: select-1.json: InputError: " in found.out


def test_the_same_parts_give_the_same_bytes() -> None:
    """No time of day, no order of chance."""
    report = BugReport((Part("b.json", "", b"{}\n"), Part("a.json", "", b"[]\n")))
    assert archive(report) == archive(report)
    first, second = (bug_report((LLAMA,), PrivateNames()) for _ in range(2))
    assert [part.name for part in first.parts] == [part.name for part in second.parts]
    kept = ("list.json", "select-1.json", "profiles.json")  # memory that is free changes
    for one, other in zip(first.parts, second.parts, strict=True):
        assert one.name not in kept or one.data == other.data


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "-"), "an archive is no text: name a file"),
        (("-o", "no/such/folder/bug.zip"), "its folder does not exist"),
        (("-o", "."), "it is a folder"),
        (("-o", ""), "is empty"),
        (("--model", "no-such.json", "-o", "bug.zip"), "no-such.json"),
    ],
)
def test_wrong_usage_writes_nothing(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence and exit code 2."""
    monkeypatch.chdir(tmp_path)
    found = run("report", *words)
    assert (found.code, found.out) == (2, "")
    assert says in found.err
    assert list(tmp_path.iterdir()) == []


def test_smoke_is_in_it_where_it_is_asked_for() -> None:
    """The cases as they ended, a good one and one that the backend does not take."""
    cases = ("paged(window=7)", "paged(dtype=float16,page=48)")
    request = Request(backends=("CPU_ATTN",), cases=cases)
    made = bug_report((), PrivateNames(), smoke=request)
    assert made.parts[-1].name == "smoke.json"
    (trials,) = json.loads(made.parts[-1].data)["backends"]
    statuses = {trial["case"]: trial["status"] for trial in trials["trials"]}
    assert sorted(statuses.values()) == ["pass", "unsupported"]
    assert json.loads(made.parts[0].data)["command"] == ["attnctl", "report", "--smoke"]


def test_json_tells_what_is_in_it(tmp_path: Path) -> None:
    """The file, and the bytes of each part."""
    path = tmp_path / "bug.zip"
    told = run("report", "-o", str(path), "--json").json
    assert told["file"] == str(path)
    with zipfile.ZipFile(path) as file:
        assert told["bytes"] == {info.filename: info.file_size for info in file.infolist()}
    assert told["left_out"] == []


def test_a_model_that_is_not_there_is_said_at_once() -> None:
    """A misspelt path is no bug to report."""
    with pytest.raises(InputError, match="no-such"):
        bug_report(("no-such.json",), PrivateNames())


def test_the_archive_never_takes_the_place_of_a_model_that_goes_into_it(tmp_path: Path) -> None:
    """Named as a file or as its folder, the config.json stays as it was."""
    model = tmp_path / "config.json"
    shutil.copy(LLAMA, model)
    for named in (model, tmp_path):
        found = run("report", "--model", str(named), "-o", str(model))
        assert (found.code, found.out) == (2, "")
        assert found.err == f"attnctl: --output {model}: it is the --model; name another file\n"
    assert model.read_bytes() == Path(LLAMA).read_bytes()
