"""Which of several profiles serves a device, shape by shape, and what is said of the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile.keys import Versions
from attnctl.profile.loading import load_profile
from attnctl.profile.places import json_files
from attnctl.profile.shelf import Fit, Shelf
from attnctl.profile.store import save
from attnctl.profile.values import Profile
from attnctl.registry import load
from tests.profile.factory import GRID, machine, profile, write

Ask = Callable[..., Fit]
STALE = Versions(torch="2.1.0", triton="3.1.0")


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A folder for the bundled profiles and one for the user's."""
    for name in ("bundled", "data"):
        (tmp_path / name).mkdir()
    return {"bundled": tmp_path / "bundled", "data": tmp_path / "data", "here": tmp_path}


@pytest.fixture
def ask(places: dict[str, Path]) -> Ask:
    """What is found for an H100 with these folders."""

    def ask(option: Path | str | None = None, named: Path | None = None, on: str = "h100") -> Fit:
        environ = {"XDG_DATA_HOME": str(places["data"])}
        if named is not None:
            environ["ATTNCTL_PROFILE"] = str(named)
        box = machine(on)
        shelf = Shelf(None if option is None else str(option), environ, places["bundled"])
        return shelf.fit(box, box.gpus[0], load())

    return ask


def keep(places: dict[str, Path], document: Profile) -> Path:
    return save(document, {"XDG_DATA_HOME": str(places["data"])})


def serving(fit: Fit) -> dict[int | None, str]:
    """Head size of a shape -> the name of the profile that serves it."""
    return {shape.head_size: fit.considered[at].name for shape, at in fit.origins.items()}


def test_the_option_goes_first_and_each_shape_to_the_first_that_holds_it(
    places: dict[str, Path], ask: Ask
) -> None:
    """--profile, ATTNCTL_PROFILE, one's own, bundled."""
    models = ("llama-3.1-8b", "qwen3-next-80b-a3b", "gpt-oss-20b", "phi-3-mini-4k")
    write(places["bundled"] / "all.json", profile(*models, name="bundled"))
    keep(places, profile(*models[:3], name="own"))
    named = write(places["here"] / "n.json", profile(*models[:2], name="named"))
    option = write(places["here"] / "o.json", profile(models[0], name="option"))
    fit = ask(option, named)
    assert serving(fit) == {128: "option", 256: "named", None: "named", 64: "own", 96: "bundled"}
    assert [one.origin for one in fit.told] == ["option", "environment", "user", "bundled"]
    assert {len(later) for later in fit.hidden.values()} == {1, 2, 3}


def test_none_leaves_every_profile_out(places: dict[str, Path], ask: Ask) -> None:
    """As the option or in the environment; a file of the option still counts before the latter."""
    write(places["bundled"] / "all.json", profile())
    option = write(places["here"] / "o.json", profile(name="option"))
    assert ask("none").profile is None
    assert ask(named=Path("none")).profile is None
    assert serving(ask(option, named=Path("none"))) == {128: "option"}


def test_in_one_folder_a_valid_one_goes_before_a_stale_one(
    places: dict[str, Path], ask: Ask
) -> None:
    """However late the stale one was measured; alone it is used, and said to be stale."""
    stale = profile(name="stale", measured="2026-12-01")
    path = keep(places, msgspec.structs.replace(stale, versions=STALE))
    assert [(one.name, one.status) for one in ask().told] == [("stale", "stale")]
    keep(places, profile(name="valid", measured="2026-01-01"))
    assert serving(ask()) == {128: "valid"}
    assert path.exists()


def test_a_stale_one_of_ones_own_goes_before_a_valid_bundled_one(
    places: dict[str, Path], ask: Ask
) -> None:
    """The order of search is kept."""
    write(places["bundled"] / "b.json", profile(name="bundled"))
    keep(places, msgspec.structs.replace(profile(name="own"), versions=STALE))
    assert serving(ask()) == {128: "own"}


def test_damage_in_a_file_that_was_found_is_said_and_in_one_that_was_named_ends(
    places: dict[str, Path], ask: Ask
) -> None:
    """The rest serves all the same."""
    keep(places, profile(name="own"))
    (places["bundled"] / "bad.json").write_text("{")
    fit = ask()
    assert serving(fit) == {128: "own"}
    assert [(one.name, one.status) for one in fit.told] == [("own", "valid"), ("bad", "damaged")]
    with pytest.raises(InputError, match=r"bad\.json: not a profile"):
        ask(places["bundled"] / "bad.json")
    with pytest.raises(InputError, match=r"ATTNCTL_PROFILE: .*missing\.json"):
        ask(named=places["here"] / "missing.json")


def test_a_document_whose_head_alone_reads_is_damaged(places: dict[str, Path], ask: Ask) -> None:
    """It is never half used."""
    path = write(places["bundled"] / "p.json", profile())
    text = path.read_text().replace('"l2":"cold"', '"l2":["cold"]')
    path.write_text(text)
    fit = ask()
    assert fit.profile is None
    assert [one.status for one in fit.told] == ["damaged"]


def test_the_nearest_is_named_where_none_fits(places: dict[str, Path], ask: Ask) -> None:
    """Of the same architecture; others are passed over in silence."""
    write(places["bundled"] / "a.json", profile(name="h100", on="h100"))
    write(places["bundled"] / "b.json", profile(name="a100", on="a100-80gb"))
    assert [(one.name, one.status) for one in ask(on="h200").told] == [("h100", "foreign")]
    assert ask(on="l4").told == ()
    assert ask(on="l4").profile is None


def test_a_dead_kernel_hands_its_shape_on(places: dict[str, Path], ask: Ask) -> None:
    """All of one's own timings being dead, the bundled ones of the shape serve."""
    write(places["bundled"] / "b.json", profile(name="bundled"))
    own = profile(name="own")
    (entry,) = own.entries
    dead = msgspec.structs.replace(entry, kernels=dict.fromkeys(entry.kernels, "other"))
    keep(places, msgspec.structs.replace(own, entries=(dead,)))
    fit = ask()
    assert serving(fit) == {128: "bundled"}
    (brief,) = [one for one in fit.considered if one.name == "own"]
    assert not brief.used
    assert len(brief.dead) == len(entry.kernels)
    assert "kernel source was other and is" in brief.dead[0]


def test_an_entry_without_points_hands_its_shape_on(places: dict[str, Path], ask: Ask) -> None:
    """It says nothing of its shape, and takes the place of no timings."""
    write(places["bundled"] / "shipped.json", profile(name="shipped"))
    whole = profile(name="mine")
    empty = tuple(msgspec.structs.replace(entry, points=()) for entry in whole.entries)
    keep(places, msgspec.structs.replace(whole, entries=empty))
    found = ask()
    assert found.profile is not None
    assert all(entry.points for entry in found.profile.entries)
    assert [(one.name, one.used) for one in found.considered] == [
        ("mine", False),
        ("shipped", True),
    ]


def test_one_dead_kernel_leaves_the_others_in_use(places: dict[str, Path], ask: Ask) -> None:
    """Only its own timings go."""
    document = profile()
    (entry,) = document.entries
    changed = {**entry.kernels, "FLASHINFER": "other"}
    (places["bundled"] / "x").mkdir()
    path = write(
        places["here"] / "p.json",
        msgspec.structs.replace(
            document, entries=(msgspec.structs.replace(entry, kernels=changed),)
        ),
    )
    fit = ask(path)
    assert fit.profile is not None
    timed = {t.backend for p in fit.profile.entries[0].points for t in p.timings}
    assert timed == {"FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"}


def test_the_library_loads_what_serves_a_machine(places: dict[str, Path]) -> None:
    """One value with the day at each point; nothing for a device that nobody timed."""
    path = write(places["here"] / "p.json", profile(grid=GRID[:2]))
    found = load_profile(str(path), machine=machine(), environ={})
    assert found is not None
    assert {point.measured for point in found.entries[0].points} == {found.measured}
    assert load_profile(str(path), machine=machine("mi300x"), environ={}) is None


def test_a_pipe_among_the_profiles_is_not_waited_for(places: dict[str, Path]) -> None:
    """It is passed over, and the file beside it is found."""
    kept = write(places["here"] / "p.json", profile("llama-3.1-8b"))
    os.mkfifo(places["here"] / "pipe.json")
    assert json_files(places["here"]) == (kept,)


@pytest.mark.parametrize("device", [1, -1])
def test_a_device_that_the_machine_has_not_is_refused(device: int) -> None:
    """Counted from 0, and never from the end."""
    with pytest.raises(InputError, match=rf"device {device}: h100 has 1, counted from 0"):
        load_profile("none", machine=machine("h100"), device=device, environ={})
