"""Of a shipped profile a command reads what it uses: the same answers, and no other timings."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from attnctl.profile.canonical import encode
from attnctl.profile.document import parse, read_profile
from attnctl.profile.places import bundled_folder, json_files
from attnctl.profile.shelf import Shelf
from attnctl.profile.shipped import counts_of, head_of, part_of
from attnctl.profile.sources import Header, Source
from attnctl.profile.values import Profile
from attnctl.registry import load
from tests.profile.factory import GRID, machine, profile, write

MODELS = ("llama-3.1-8b", "qwen3-next-80b-a3b", "gpt-oss-20b")
SHIPPED = json_files(bundled_folder())


def several() -> Profile:
    """A profile of four layer shapes."""
    return profile(*MODELS, grid=GRID[:2])


def test_the_part_of_a_shape_is_what_the_whole_holds_of_it() -> None:
    """For every shape of every shipped profile, and for one made here."""
    for data in (encode(several()), *(path.read_bytes() for path in SHIPPED)):
        whole = parse(data, "p.json", ours=True)
        for entry in whole.entries:
            part = part_of(data, frozenset({entry.shape.full}))
            assert part == msgspec.structs.replace(whole, entries=(entry,))
        assert part_of(data, frozenset()) == msgspec.structs.replace(whole, entries=())


def test_the_head_of_a_file_is_read_without_what_follows(tmp_path: Path) -> None:
    """Canonical files alone begin so; another is read whole, and says the same."""
    document = several()
    canonical = write(tmp_path / "p.json", document)
    loose = tmp_path / "loose.json"
    loose.write_bytes(msgspec.json.encode(document))
    heads = [head_of(path) for path in (canonical, loose)]
    assert len(heads[0]) < 1000 < len(heads[1])
    first, second = (msgspec.json.decode(head, type=Header) for head in heads)
    assert first == second
    assert first.key == document.key
    for path in SHIPPED:
        assert len(head_of(path)) < 2000, path.name


def test_the_counts_are_those_of_the_whole() -> None:
    """Shapes and points, as `profile list` shows them."""
    for path in SHIPPED:
        entries = read_profile(path).entries
        points = sum(len(entry.points) for entry in entries)
        assert counts_of(path.read_bytes()) == (len(entries), points)


@pytest.mark.parametrize("damage", ['"context":0', '"context":"long"', '"context":[1'])
def test_damage_in_what_is_asked_for_is_found_as_in_any_file(tmp_path: Path, damage: str) -> None:
    """A broken entry is named, a broken document raises."""
    document = profile(grid=GRID[:1])
    path = tmp_path / "p.json"
    path.write_bytes(msgspec.json.encode(document).replace(b'"context":1024', damage.encode()))
    source = Source("bundled", path, None)
    shapes = frozenset(entry.shape.full for entry in document.entries)
    if damage.endswith("[1"):
        with pytest.raises(Exception, match="not a profile"):
            source.read(shapes)
        return
    read = source.read(shapes)
    assert read.entries == ()
    assert "entries[0] is left out" in read.bad_entries[0]


def test_in_a_file_of_somebodys_own_every_entry_is_read(tmp_path: Path) -> None:
    """Damage in a shape that was not asked for is told there, and not of a shipped file."""
    document = several()
    damaged = msgspec.to_builtins(document)
    for entry in damaged["entries"]:
        if entry["shape"]["op"] == "gdn":
            entry["points"][0]["batch"] = 0
    (tmp_path / "attnctl" / "profiles").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    box = machine()
    asked = [entry.shape for entry in document.entries if entry.shape.op != "gdn"]
    own = tmp_path / "attnctl" / "profiles" / "p.json"
    own.write_bytes(msgspec.json.encode(damaged))
    fit = Shelf(None, {"XDG_DATA_HOME": str(tmp_path)}, tmp_path / "empty").fit(
        box, box.gpus[0], load(), asked
    )
    assert [len(one.bad_entries) for one in fit.considered] == [1]
    fit = Shelf(None, {}, own.parent).fit(box, box.gpus[0], load(), asked)
    assert [len(one.bad_entries) for one in fit.considered] == [0]
    assert {shape.full for shape in asked} == set(fit.origins)


def test_one_shelf_serves_several_questions(tmp_path: Path) -> None:
    """What was read for one model's shapes is not taken for all that the file holds."""
    document = several()
    write(tmp_path / "p.json", document)
    shelf, box = Shelf(None, {}, tmp_path), machine()
    for entry in (*document.entries, document.entries[0]):
        fit = shelf.fit(box, box.gpus[0], load(), [entry.shape])
        assert set(fit.origins) == {entry.shape.full}
    assert len(shelf.fit(box, box.gpus[0], load()).origins) == len(document.entries)
