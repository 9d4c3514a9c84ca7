"""The documentation tells the truth: what it shows is what the program prints."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from attnctl.cli import build
from tests.commands.running import LLAMA, ROOT, run
from tests.docs.bounds import PAGES

BLOCKS = runpy.run_path(str(ROOT / "tools" / "blocks.py"))
SCHEMAS = runpy.run_path(str(ROOT / "tools" / "schemas.py"))["documents"]()
PICTURES = runpy.run_path(str(ROOT / "tools" / "screens.py"))["pictures"]()


def blocks(language: str) -> list[Any]:
    """Every block of a language on any page, as a test parameter that names its place."""
    return [
        pytest.param(block, id=f"{block.file}:{block.line}")
        for page in PAGES
        for block in BLOCKS["blocks"](page)
        if block.language == language
    ]


@pytest.mark.parametrize("block", blocks("python"))
def test_every_python_block_runs(block: Any) -> None:
    """The library's examples run as they stand."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", block.body], cwd=ROOT, env=environ, check=True)


@pytest.mark.parametrize("block", blocks("text"))
def test_every_output_is_what_the_program_prints(block: Any) -> None:
    """A `text COMMAND` block holds that command's output; `make docs` renews it."""
    assert block.mark.startswith("attnctl ")
    assert block.body == BLOCKS["output_of"](block.mark)


def test_the_readme_has_exactly_two_set_up_commands() -> None:
    """One installs and runs the main job, one installs what tests need and passes them."""
    marks = [
        block.mark
        for block in BLOCKS["blocks"](ROOT / "README.md")
        if block.language == "sh" and block.mark
    ]
    assert marks == ["install-tool", "install-tests"]


def test_every_link_to_a_file_leads_somewhere() -> None:
    """Relative links of every page name files that are there."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_file_and_target_that_a_page_names_is_there() -> None:
    """Paths between backquotes below a folder of the checkout, modules and targets of make.

    The list of changes may name what is gone.
    """
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tops = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name != ".git"]
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        for named in re.findall(r"`([^`\n]+)`", page.read_text("utf-8")):
            path = named.rstrip("/")
            if re.fullmatch(r"[\w./*-]+", path) and path.partition("/")[0] in tops and "/" in path:
                assert [*ROOT.glob(path), *page.parent.glob(path)], f"{page.name}: {named}"
            if made := re.match(r"make ([\w-]+)", named):
                assert made[1] in targets, f"{page.name}: {named}"
            if module := re.match(r"python -m ([\w.]+)", named):
                found = ROOT / module[1].replace(".", "/")
                assert found.is_dir() or found.with_suffix(".py").exists(), f"{page.name}: {named}"


def test_the_support_table_is_current() -> None:
    """docs/support.md is what `attnctl list --markdown` prints; `make docs` renews it."""
    assert (ROOT / "docs" / "support.md").read_text("utf-8") == run("list", "--markdown").out


def test_the_page_of_codes_is_current() -> None:
    """docs/codes.md is what `attnctl explain --markdown` prints; `make docs` renews it."""
    assert (ROOT / "docs" / "codes.md").read_text("utf-8") == run("explain", "--markdown").out


@pytest.mark.parametrize("name", ["screen-light.svg", "screen-dark.svg"])
def test_the_picture_of_the_readme_is_current(name: str) -> None:
    """It is the program's own screen, and well-formed; `make docs` renews it."""
    drawn = PICTURES[name]
    assert (ROOT / "docs" / name).read_text("utf-8") == drawn
    words = [element.text or "" for element in ElementTree.fromstring(drawn)]
    command = words[words.index("model") - 1]
    assert command.startswith("$ attnctl select ")
    pick = run(*command.split()[2:], "--json").json["groups"][0]["pick"]
    assert pick in words
    assert words[-1].endswith(f": {pick}")
    assert f"docs/{name}" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_are_current(name: str) -> None:
    """docs/schema holds the schemas of the types as they are; `make docs` renews them."""
    assert (ROOT / "docs" / "schema" / name).read_bytes() == SCHEMAS[name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("machine", ("probe", "--json")),
        ("machine", ("probe", "--machine", "mi300x", "--json")),
        ("select", ("select", "--model", LLAMA, "--machine", "h200", "--what-if", "--json")),
        ("select", ("select", "--model", LLAMA, "--machine", "t4", "--json")),
        ("select-sweep", ("select", "--model", LLAMA, "--machine", "all", "--json")),
        ("matrix", ("list", "--json")),
        ("codes", ("explain", "--json")),
        ("libraries", ("probe", "--libs", "--json")),
    ],
)
def test_documents_fit_their_schema(name: str, words: tuple[str, ...]) -> None:
    """What a command prints under --json is valid against the published schema."""
    schema = json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text())
    jsonschema.validate(run(*words).json, schema)


def test_a_tape_fits_its_schema(tmp_path: Path) -> None:
    """What `--record` writes is valid against the published schema."""
    tape = tmp_path / "tape.json"
    assert run("probe", "--record", str(tape)).code == 0
    jsonschema.validate(json.loads(tape.read_text()), json.loads(SCHEMAS["tape.schema.json"]))


def test_every_machine_and_model_file_fits_its_schema() -> None:
    """Bundled machines are valid against the machine schema."""
    schema = json.loads(SCHEMAS["machine.schema.json"])
    files = sorted((ROOT / "profiles" / "machines").glob("*.json"))
    assert len(files) >= 30
    for file in files:
        jsonschema.validate(json.loads(file.read_text()), schema)


def shown_commands() -> list[Any]:
    """Commands of the prose, less those with dots in place of words; blocks are run."""
    found = {}
    for page in PAGES:
        for named in re.findall(r"`(attnctl [a-z][^`]*)`", page.read_text("utf-8")):
            command = " ".join(named.split())
            if "..." not in command:
                found[f"{page.name}: {command}"] = command
    return [pytest.param(command, id=place) for place, command in found.items()]


@pytest.mark.parametrize("command", shown_commands())
def test_every_command_that_a_page_names_is_understood(command: str) -> None:
    """It exists, and so do its options."""
    words = shlex.split(re.split(r" (?:\||>|\|\|) ", command)[0], comments=True)[1:]
    here, path = build(), "attnctl"
    while words and hasattr(here, "list_commands"):
        path = f"{path} {words[0]}"
        here = here.get_command(None, words.pop(0))
        assert here is not None, path
    known = {name for param in here.params for name in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known
