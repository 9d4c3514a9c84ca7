"""What the library says of profiles: what was used, what was not, and why, each once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import attnctl
from attnctl.profile.document import key_of, shape_of
from attnctl.profile.keys import Key, Versions
from attnctl.profile.loading import timings_for
from attnctl.profile.values import Entry, Point, Profile, Timing
from attnctl.registry import load
from tests.commands.running import LLAMA
from tests.profile.factory import layers, machine, write

HERE = machine("zen3")
KEY = key_of(HERE, None)


def profile(**changes: object) -> Profile:
    """One shape that a processor's backend was timed at, without a hash."""
    point = Point(
        phase="decode", batch=1, context=64, timings=(Timing(backend="CPU_ATTN", median_us=9.0),)
    )
    entry = Entry(shape=shape_of(layers("llama-3.1-8b")[0]), points=(point,))
    fields = {"name": "mine", "key": KEY, "entries": (entry,), **changes}
    return Profile(**fields)


def notes(path: Path) -> tuple[str, ...]:
    return timings_for(path, HERE, 0, load(), {"XDG_DATA_HOME": str(path.parent)})[1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ()),
        (
            {"versions": Versions(torch="1.0")},
            ("profile mine [option] is stale here: torch 1.0, here ",),
        ),
        (
            {"key": msgspec.structs.replace(KEY, arch="zen9")},
            ("profile mine [option] is foreign here and is not used: arch zen9, here zen3",),
        ),
    ],
)
def test_a_named_profile_that_does_not_fit_says_in_what(
    changes: dict[str, object], says: tuple[str, ...], tmp_path: Path
) -> None:
    """The field, what it wants and what is here; one that fits is not spoken of."""
    found = notes(write(tmp_path / "p.json", profile(**changes)))
    named = [note for note in found if "[option]" in note]
    assert len(named) == len(says)
    assert all(note.startswith(start) for note, start in zip(named, says, strict=True))


def test_what_is_dead_or_damaged_is_one_note_each(tmp_path: Path) -> None:
    """Timings of another kernel, and an entry that does not read."""
    (entry,) = profile().entries
    dead = msgspec.structs.replace(entry, kernels={"CPU_ATTN": "0" * 16})
    path = write(tmp_path / "p.json", profile(entries=(dead,)))
    text = path.read_text().replace('"entries": [', '"entries": [{"shape": 1},', 1)
    path.write_text(text)
    found = notes(path)
    assert sum("CPU_ATTN's timings of paged 32/8 heads" in note for note in found) == 1
    assert sum("entries[0] is left out" in note for note in found) == 1
    alone = msgspec.structs.replace(profile(entries=(dead,)), bad_entries=("p: entries[0] is bad",))
    alive, said = timings_for(alone, HERE, 0, load())
    assert alive is not None
    assert (alive.entries, len(said), said[1]) == ((), 2, "p: entries[0] is bad")


def test_profiles_of_other_machines_that_nobody_named_are_not_spoken_of(tmp_path: Path) -> None:
    """Those that are shipped for GPUs are no news on a processor."""
    said = notes(write(tmp_path / "p.json", profile()))
    assert not [note for note in said if "H200" in note]
    other = Key(vendor="nvidia", arch="sm_90", pci_id="10de:2335", unit_count=132)
    named = notes(write(tmp_path / "q.json", profile(key=other)))
    assert [note for note in named if "vendor nvidia, here AMD" in note]


def test_a_plans_notes_hold_them(tmp_path: Path) -> None:
    """With what the plan itself leaves out."""
    path = write(tmp_path / "p.json", profile(versions=Versions(torch="1.0")))
    plan = attnctl.plan(LLAMA, HERE, profile=path)
    assert sum("is stale here: torch 1.0" in note for note in plan.notes) == 1
