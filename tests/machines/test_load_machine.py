"""Loading a machine file: what is kept, and what is said where it cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.exits import InputError
from attnctl.machine import SCHEMA, Machine
from attnctl.machines import folder, load, names

INT64 = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type; every field of a struct is drawn, none left to its default."""
    args = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = get_type_hints(hint)
        return st.builds(hint, **{name: values(fields[name]) for name in hint.__struct_fields__})
    if hint in (str, float, int):
        return {str: TEXT, int: INT64, float: st.floats(0, 1e300)}[hint]
    if get_origin(hint) is dict:
        return st.dictionaries(TEXT, values(args[1]), max_size=2)
    if get_origin(hint) is tuple and args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    if get_origin(hint) is tuple:
        return st.tuples(*map(values, args))
    return st.one_of(map(values, args)) if type(None) in args else st.from_type(hint)


MACHINES = values(Machine).map(lambda m: msgspec.structs.replace(m, schema=SCHEMA))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("machines") / "machine.json"


def refusal(path: Path, data: str | bytes) -> str:
    """What load says of a file with this content."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(InputError) as caught:
        load(str(path))
    return str(caught.value)


def loads_or_says(path: Path) -> str | None:
    """None where the file loads, or is refused in one line that begins with its name."""
    try:
        load(str(path))
    except InputError as error:
        said = str(error)
        return None if said.startswith(f"{path}: ") and len(said.splitlines()) == 1 else said
    return None


def test_every_bundled_machine_reads_as_anybodys_file_does() -> None:
    """By its name it is read without the checks for keys given twice and numbers that cannot be."""
    for name in names():
        assert load(name) == load(str(folder() / f"{name}.json")), name


@settings(max_examples=60, deadline=None)
@given(MACHINES)
def test_what_is_saved_is_loaded_and_saved_again_unchanged(path: Path, machine: Machine) -> None:
    """load, encode, load is the identity for any machine that the probe could write."""
    path.write_bytes(msgspec.json.encode(machine))
    first = load(str(path))
    assert first == machine
    path.write_bytes(msgspec.json.encode(first))
    assert load(str(path)) == first


@pytest.mark.parametrize("name", names())
def test_a_bundled_machine_survives_a_round_trip(path: Path, name: str) -> None:
    """A bundled machine written out and read back is the same machine."""
    path.write_bytes(msgspec.json.encode(load(name)))
    assert load(str(path)) == load(name)


@pytest.mark.parametrize(
    "data", ["", "{", "not json", '{"name": "x"', b'{"name": "\xff", "cpu": {}}']
)
def test_what_is_not_json_is_refused(path: Path, data: str | bytes) -> None:
    """Broken JSON: the file, what the parser saw, and how to write a good one."""
    said = refusal(path, data)
    assert said.startswith(f"{path}: not JSON (")
    assert "attnctl probe --save FILE" in said


def test_json_nested_beyond_reason_is_refused(path: Path) -> None:
    """A hundred thousand brackets are an input error, not a crash."""
    deep = "[" * 100_000 + "]" * 100_000
    assert "recursion" in refusal(path, f'{{"name": "x", "cpu": {{}}, "extra": {deep}}}')


@pytest.mark.parametrize(
    ("data", "place", "problem"),
    [
        ("[]", "", "expected 'object', got 'array'"),
        ('{"name": "x"}', "", "object missing required field 'cpu'"),
        ('{"name": 7, "cpu": {}}', "name: ", "expected 'str', got 'int'"),
        ('{"name": "x", "cpu": {"cores": "8"}}', "cpu.cores: ", "expected 'int | null', got 'str'"),
        (
            '{"name": "x", "cpu": {}, "nvidia": {"gpus": [{"index": 0, "capability": [9]}]}}',
            "nvidia.gpus[0].capability: ",
            "expected 'array' of length 2",
        ),
        (
            '{"name": "x", "cpu": {}, "amd": {"status": "fine\\nly"}}',
            "amd.status: ",
            "invalid enum value 'fine\\nly'",
        ),
    ],
)
def test_a_wrong_value_is_named_by_its_key_path(
    path: Path, data: str, place: str, problem: str
) -> None:
    """File, key path and problem in one line."""
    assert refusal(path, data).startswith(f"{path}: {place}{problem}: ")
    assert "\n" not in refusal(path, data)


@pytest.mark.parametrize("version", ["2", "2.0", "17"])
def test_a_newer_schema_is_refused_with_a_hint_to_upgrade(path: Path, version: str) -> None:
    """A file of a newer major version is not guessed at, whatever else it holds."""
    said = refusal(path, f'{{"schema": "attnctl.machine/{version}", "name": ["new form"]}}')
    assert f"'attnctl.machine/{version}' is newer than this attnctl reads" in said
    assert "upgrade attnctl" in said


@pytest.mark.parametrize("schema", ["attnctl.model/1", "attnctl.machine", "attnctl.machine/x", ""])
def test_a_file_of_another_schema_is_refused(path: Path, schema: str) -> None:
    """A model or a profile given as a machine is told apart by its schema."""
    said = refusal(path, json.dumps({"schema": schema, "name": "x", "cpu": {}}))
    assert said == f"{path}: schema: {schema!r} is not a machine file (wanted {SCHEMA!r})"


def test_keys_of_a_later_minor_version_are_ignored(path: Path) -> None:
    """A file with keys that this version has not heard of still loads."""
    path.write_text('{"schema": "attnctl.machine/1.4", "name": "x", "cpu": {"new": 1}, "more": []}')
    assert load(str(path)).name == "x"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(names()), st.data())
def test_a_damaged_file_loads_or_is_refused_in_one_line(
    path: Path, name: str, data: st.DataObject
) -> None:
    """Bytes cut out, put in or overwritten end in a machine or an InputError, nothing else."""
    good = (folder() / f"{name}.json").read_bytes()
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, min(len(good), start + 40)))
    path.write_bytes(good[:start] + data.draw(st.binary(max_size=8)) + good[stop:])
    assert loads_or_says(path) is None
