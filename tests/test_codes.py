"""The table behind `attnctl explain CODE`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import attnctl
from attnctl.cli import COMMANDS
from attnctl.codes import TABLE, meaning, near
from attnctl.layer import FEATURES
from attnctl.registry import load

PACKAGE = Path(attnctl.__file__).parent


def test_every_code_of_every_rule_of_the_registry_is_explained() -> None:
    """A reason that `select` prints can always be looked up."""
    used = {rule.code for backend in load().backends for rule in backend.rules}
    assert sorted(code for code in used if meaning(code) is None) == []
    assert len(used) > 20


def test_every_feature_that_a_layer_may_demand_is_explained() -> None:
    """Features are codes too."""
    assert [name for name in FEATURES if meaning(name) is None] == []


def test_every_code_that_the_probe_writes_is_explained() -> None:
    """Codes are looked for where a finding is made: as its first argument, or named `code`."""
    made = re.compile(
        r'(?:(?:un)?met|unknown|_cut)\(\s*f?"([a-z]+\.[a-z0-9_.{}]+)"'
        r'|code(?:, wanted)? = f?"([a-z]+\.[a-z0-9_.{}]+)"'
        r'|"([a-z]+\.[a-z_]+)" if '
    )
    codes = {
        re.sub(r"{[^}]*}", "something", code)
        for path in (PACKAGE / "probe").rglob("*.py")
        for found in made.findall(path.read_text(encoding="utf-8"))
        for code in found
        if code
    }
    assert sorted(code for code in codes if meaning(code) is None) == []
    assert {"visibility.cuda.order", "package.something.incomplete"} <= codes


def test_a_code_with_a_word_that_varies_is_found_by_its_pattern() -> None:
    """The name of a package or the kind of an error may stand in a code."""
    found = meaning("package.flash_attn.incomplete")
    assert found is not None
    assert found.code == "package.flash_attn.incomplete"
    assert found.title == "A package's metadata is there and its files are not"
    exact = meaning("nvidia.nvml_absent")
    assert exact is not None
    assert exact.title == "NVML is missing and CUDA works"


@pytest.mark.parametrize("code", ["", "nonsense", "package..incomplete", "nvidia.nvml_"])
def test_a_code_that_nobody_knows_has_no_meaning(code: str) -> None:
    """Nothing is invented for it."""
    assert meaning(code) is None


def test_a_misspelt_code_is_near_the_right_one() -> None:
    """The command can say what was meant."""
    assert "head_size" in near("headsize")


def test_each_text_is_a_sentence_and_each_title_is_not() -> None:
    """Titles end without a full stop; what follows ends with one, or is a command."""
    for code, (title, about, advice) in TABLE.items():
        assert not title.endswith("."), code
        assert about.endswith("."), code
        assert advice.endswith(".") or "pip" in advice, code


def commands() -> set[str]:
    """The verbs that the command line has."""
    return set(COMMANDS)


def invocations(text: str) -> list[str]:
    """The verb of each command that a text tells the reader to run."""
    told = r"(?:^|`|: |with |; |, |as )attnctl ([a-z]+)"
    return [verb for verb in re.findall(told, text) if verb not in ("in", "inside", "reads")]


def test_every_command_that_an_explanation_names_exists() -> None:
    """Advice that cannot be followed is none."""
    named = {verb for row in TABLE.values() for text in row for verb in invocations(text)}
    assert named - commands() == set()
    assert named >= {"probe", "smoke"}


def test_every_command_that_a_string_of_the_package_names_exists() -> None:
    """Fixes are strings too, wherever they are made."""
    named = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.update(dict.fromkeys(invocations(node.value), path.name))
    assert {verb: where for verb, where in named.items() if verb not in commands()} == {}
    assert set(named) >= {"probe", "smoke", "select"}
