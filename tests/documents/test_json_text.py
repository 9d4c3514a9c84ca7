"""Keys that an object names twice are found in every document, and never where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl import machines
from attnctl.compiling.baseline import read_report
from attnctl.documents.json_text import plain, refuse_repeated, repeated, unmarked
from attnctl.exits import InputError
from attnctl.probe.tape import read_tape
from attnctl.profile.canonical import encode
from attnctl.profile.document import parse, read_to_add
from attnctl.tune.workload import read_workload
from tests.commands.running import ROOT
from tests.profile.factory import profile

SHIPPED = sorted((ROOT / "profiles").rglob("*.json"))

TEXTS = st.sampled_from(["", "a", "b", "a:b", ":", '"', "\\", "é", "{", "a b", "\n", "\u2028"])


def written(text: str, how: int) -> str:
    """A text as JSON: plain, in ASCII, or every character as an escape."""
    if how == 2:
        return '"' + "".join(f"\\u{ord(one):04{'xX'[len(text) % 2]}}" for one in text) + '"'
    return json.dumps(text, ensure_ascii=bool(how))


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON whose objects may name a key again, in another spelling too."""
    kind = draw(st.integers(0, 4 if depth else 2))
    if kind == 0:
        return draw(st.sampled_from(["1", "-0.0", "1e5", "null", "true", "NaN", str(10**30)]))
    if kind <= 2:
        return written(draw(TEXTS), draw(st.integers(0, 2)))
    inner = documents(depth=depth - 1)
    if kind == 3:
        return "[" + ",\n".join(draw(st.lists(inner, max_size=3))) + "]"
    names = draw(st.lists(st.tuples(TEXTS, st.integers(0, 2), inner), max_size=3))
    return "{" + ",".join(f"{written(key, how)}: {value}" for key, how, value in names) + "}"


def counted(text: str) -> int:
    """How many members an object of the text took from an earlier one, by Python's own parser."""
    lost = 0

    def one_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal lost
        lost += len(pairs) - len(dict(pairs))
        return dict(pairs)

    json.loads(text, object_pairs_hook=one_object)
    return lost


@settings(max_examples=600)
@given(documents())
def test_as_many_repeated_keys_are_found_as_a_parser_drops(text: str) -> None:
    """Whatever the spelling, the depth and what else stands in the texts."""
    assert len(repeated(text.encode())) == counted(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "a": 2}', "a is given twice, in line 1 and in line 2"),
        ('{"a": 1, "a": 2}', "a is given twice in line 1, at columns 2 and 10"),
        ('[{"b": [0, {"a": 1,\n"\\u0061": 2}]}]', "[0].b[1].a is given twice, in line 1 and in"),
        ('{"a\\n": 1, "a\\n": 2}', r'"a\n" is given twice'),
        ('{"": 1, "": 2}', '"" is given twice'),
    ],
)
def test_the_path_and_both_places_are_named(text: str, said: str) -> None:
    """Lines where they differ, columns where they do not; odd names in quotes."""
    with pytest.raises(InputError) as caught:
        refuse_repeated(text.encode(), "x.json")
    assert str(caught.value).startswith(f"x.json: {said}")
    assert str(caught.value).endswith(": keep one of them")


@pytest.mark.parametrize("key", [b"\x80", b"\\q", b"\\udc80"])
def test_a_key_that_does_not_read_is_told_from_another(key: bytes) -> None:
    """A parser passes over members that it does not know without looking at their names."""
    assert repeated(b'{"' + key + b'": 1, "x": {"\\ud800": 1, "\x81": 2}}') == ()
    assert len(repeated(b'{"' + key + b'": 1, "' + key + b'": 2}')) == 1


def test_a_key_of_a_megabyte_is_not_repeated_in_the_message() -> None:
    """What is said fits a line."""
    key = "k" * 2**20
    (text,) = repeated(f'{{"{key}": 1, "{key}": 2}}'.encode())
    assert len(text) < 200


MACHINE = (ROOT / "profiles" / "machines" / "h200.json").read_text()
TAPE = (ROOT / "tests" / "machines" / "h200.tape.json").read_text()
PROFILE = encode(profile()).decode()
POINT = '[{"phase": "decode", "batch": 1, "context": 64}]'
REPORT = json.dumps({"backends": [{"backend": "X", "device": "sm_90", "trials": []}]})


@pytest.mark.parametrize(
    ("text", "read", "key"),
    [
        (MACHINE, machines.load, '"schema"'),
        (TAPE, lambda path: read_tape(Path(path).read_bytes(), path), '"schema"'),
        (PROFILE, lambda path: parse(Path(path).read_bytes(), path), '"name"'),
        (POINT, read_workload, '"batch"'),
    ],
    ids=["machine", "tape", "profile", "workload"],
)
def test_each_document_with_a_repeated_key_is_refused(
    tmp_path: Path, text: str, read: Callable[[str], object], key: str
) -> None:
    """The file, the key and both places; as it was it reads, and with a byte-order mark too."""
    path = tmp_path / "x.json"
    path.write_text(text)
    read(str(path))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    read(str(path))
    name, value = key, text.partition(key)[2].partition(",")[0]
    path.write_text(text.replace(f"{name}{value}", f"{name}{value},\n{name}{value}", 1))
    with pytest.raises(InputError, match=r"x\.json: .*is given twice, in line \d+ and in li"):
        read(str(path))
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(
        InputError, match=r"x\.json: this is UTF-16 text, and JSON is UTF-8: save it"
    ):
        read(str(path))


def test_an_earlier_report_that_repeats_a_key_is_refused(tmp_path: Path) -> None:
    """The file of --baseline."""
    path = tmp_path / "x.json"
    path.write_bytes(REPORT.encode("utf-16"))
    with pytest.raises(InputError, match="this is UTF-16 text"):
        read_report(str(path))


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-16-le", "UTF-16"),
        ("utf-16-be", "UTF-16"),
        ("utf-16", "UTF-16"),
        ("utf-32", "UTF-32"),
        ("utf-32-le", "UTF-32"),
        ("utf-32-be", "UTF-32"),
    ],
)
def test_a_wider_encoding_is_named(encoding: str, name: str) -> None:
    """With its mark and without."""
    with pytest.raises(InputError, match=f"x: this is {name} text"):
        unmarked('{"a": 1}'.encode(encoding), "x")


def test_an_entry_that_repeats_a_key_is_left_out_and_the_others_serve(tmp_path: Path) -> None:
    """It is named with both places; a file that would lose it is not added to."""
    text = PROFILE.replace('"points":', '"points": [],\n"points":', 1)
    path = tmp_path / "p.json"
    path.write_text(text)
    found = parse(text.encode(), "p.json")
    (bad,) = found.bad_entries
    assert bad.startswith("p.json: entries[0] is left out: entries[0].points is given twice, in li")
    assert len(found.entries) == PROFILE.count('"points"') - 1
    with pytest.raises(InputError, match=r"adding to the file would lose it: .* prune .*p\.json"):
        read_to_add(path)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_no_shipped_file_repeats_a_key(path: Path) -> None:
    """Shipped profiles are read without the look for it."""
    assert repeated(path.read_bytes()) == ()


@settings(max_examples=300, deadline=None)
@given(documents())
def test_plain_json_is_the_value_that_the_standard_parser_gives(text: str) -> None:
    """Down to each number's type; None wherever an object names a key twice."""
    found = plain(text.encode())
    if repeated(text.encode()):
        assert found is None
    if found is not None:
        assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text",
    ["18446744073709551616", "-9223372036854775809", "-0", "-0.0", "1e5", "1e-400", "0.1"],
)
def test_numbers_at_the_edges_are_the_standard_parsers(text: str) -> None:
    """Whole numbers of any size stay whole."""
    assert repr(plain(f"[{text}]".encode())) == repr(json.loads(f"[{text}]"))


@pytest.mark.parametrize("text", ["NaN", "[1e999]", '"\\ud800"', "", "{", '{"a": 1} x', "null"])
def test_what_is_not_plain_is_left_to_the_standard_parser(text: str) -> None:
    """It takes some of it, and says where the rest goes wrong."""
    assert plain(text.encode()) is None


def test_configs_are_read_alike_by_both_parsers() -> None:
    """Every model file of the tests is plain."""
    for path in sorted((ROOT / "tests" / "models").glob("*.json")):
        data = path.read_bytes()
        assert repr(plain(data)) == repr(json.loads(data)), path.name
