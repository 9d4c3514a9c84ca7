"""`attnctl select --profile`: timings reorder what is eligible, and the answer says so."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from attnctl.profile.keys import Key, Versions
from attnctl.profile.values import Entry, Point, Profile, Shape, Timing
from tests.commands.running import LLAMA, Answer, run

# a machine of which no profile is shipped
H100 = Key(vendor="nvidia", arch="sm_90", pci_id="10de:2330", unit_count=132)
SHAPE = Shape(op="paged", heads=32, kv_heads=8, head_size=128, head_size_v=128)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "profile.json"


def write(path: Path, key: Key = H100, **more: object) -> None:
    """A profile in which TRITON_ATTN is twice as fast as FLASH_ATTN on Llama's layers."""
    timings = (
        Timing(backend="FLASH_ATTN", median_us=20.0, runs=9),
        Timing(backend="TRITON_ATTN", median_us=10.0, runs=9),
    )
    point = Point(phase="decode", batch=8, context=4096, timings=timings)
    entries = (Entry(shape=SHAPE, points=(point,)),)
    document = Profile(name="mine", key=key, entries=entries, **more)
    path.write_bytes(msgspec.json.encode(document))


def selected(profile: Path, *words: str) -> tuple[str, str]:
    """(pick, evidence) of Llama on an H100 with a profile."""
    found = run(
        *("select", "--model", LLAMA, "--machine", "h100", "--profile", str(profile), "--json"),
        *words,
    )
    (group,) = found.json["groups"]
    return group["pick"], group["winner"]["evidence"]


def test_a_profile_of_this_card_reorders_the_picks(profile: Path) -> None:
    """The faster backend stands first, on measured evidence."""
    write(profile)
    assert selected(profile) == ("TRITON_ATTN", "measured")


def test_a_profile_of_another_card_is_ignored_with_a_note(profile: Path) -> None:
    """Another unit count is another card: the default order stays, and the text says why."""
    write(profile, msgspec.structs.replace(H100, unit_count=114))
    assert selected(profile)[1] != "measured"
    out = run("select", "--model", LLAMA, "--machine", "h100", "--profile", str(profile)).out
    assert "note: the profile mine is foreign and not used" in out
    assert "unit_count 114" in out


def test_a_profile_of_an_older_compiler_is_used_with_a_warning(profile: Path) -> None:
    """Another Triton makes it stale: it still orders, and the text says so once."""
    write(profile, versions=Versions(triton="3.0.0"))
    assert selected(profile) == ("TRITON_ATTN", "measured")
    out = run("select", "--model", LLAMA, "--machine", "h100", "--profile", str(profile)).out
    assert out.count("note: the profile mine is stale") == 1
    assert "3.0.0" in out


def test_a_profile_never_makes_an_ineligible_backend_eligible(profile: Path) -> None:
    """Without its packages the faster backend is not picked, however fast it was."""
    write(profile)
    without = ("--assume-installed", "torch,flash_attn_3")
    assert selected(profile, *without) == ("FLASH_ATTN", "only")


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_profile_may_be_named_as_everywhere_else(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own or a shipped one, as `profile` and `warm` take it; what is neither has a hint."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    own = tmp_path / "attnctl" / "profiles" / "mine.json"
    own.parent.mkdir(parents=True)
    write(own)

    def answered(name: str) -> Answer:
        if by == "environment":
            monkeypatch.setenv("ATTNCTL_PROFILE", name)
        words = ("--profile", name) if by == "option" else ()
        return run("select", "--model", LLAMA, "--machine", "h100", *words, "--json")

    for name in ("mine", "h200"):
        (named,) = [one for one in answered(name).json["profiles"] if one["origin"] == by]
        assert named["path"].endswith(f"/{name}.json")
    found = answered("mien")
    assert (found.code, found.out) == (2, "")
    assert "mien: no profile or file of that name. Did you mean mine?" in found.err


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_profile_may_come_through_a_pipe(
    by: str, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a shell's <(command) gives it: what is read once is gone."""
    write(profile)
    reader, writer = os.pipe()
    os.write(writer, profile.read_bytes())
    os.close(writer)
    name = f"/dev/fd/{reader}"
    if by == "environment":
        monkeypatch.setenv("ATTNCTL_PROFILE", name)
    words = ("--profile", name) if by == "option" else ()
    found = run("select", "--model", LLAMA, "--machine", "h100", *words, "--json")
    os.close(reader)
    (group,) = found.json["groups"]
    assert (group["pick"], group["winner"]["evidence"]) == ("TRITON_ATTN", "measured")


def test_a_profile_that_does_not_read_is_one_sentence(profile: Path) -> None:
    """A damaged document exits 2 and names the file."""
    profile.write_text("{")
    found = run("select", "--model", LLAMA, "--machine", "h100", "--profile", str(profile))
    assert (found.code, found.out) == (2, "")
    assert str(profile) in found.err
    assert found.err.count("\n") == 1


def test_the_profile_line_says_how_many_groups_it_decided(profile: Path) -> None:
    """Layers of a shape that was never timed are named in one note."""
    write(profile)
    asked = ("select", "--model", LLAMA, "--machine", "h100", "--profile", str(profile))
    timed, other = run(*asked).out, run(*asked, "--dtype", "float16").out
    assert "which decided 1 of 1 group of layers [valid, --profile]" in timed
    assert "no timings" not in timed
    assert "which decided 0 of 1 group of layers [valid, --profile]" in other
    assert other.count("note: the profile has no timings for layers of this shape: ") == 1
    assert other.count("no timings") == 1
