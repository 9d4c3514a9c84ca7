"""Renewing the hashes in a profile: only where they held, only what is named, never on trust."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from attnctl.exits import InputError
from attnctl.profile import read_profile
from attnctl.profile.hashes import kernel_hashes
from attnctl.registry import load
from tests.commands.running import ROOT
from tests.profile import factory
from tools.restamp import main

EDITED = "attnctl/kernels/triton/paged/decode.py"


def git(root: Path, *words: str) -> str:
    """What git says in a repository."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.check_output(["git", "-C", str(root), *who, *words], text=True).strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in two revisions, tagged `was` and `now`: the second edits a kernel."""
    root = tmp_path_factory.mktemp("repository")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "attnctl", root / "attnctl", ignore=ignored)
    git(root, "init", "--quiet")
    for revision in ("was", "now"):
        if revision == "now":
            with (root / EDITED).open("a") as file:
                file.write("# edited\n")
        git(root, "add", "attnctl")
        git(root, "commit", "--quiet", "--message", revision)
        git(root, "tag", revision)
    return root


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A tune's profile with the hashes of the first revision."""
    return factory.write(tmp_path / "p.json", factory.profile())


def stated(path: Path, name: str) -> set[str]:
    """The hashes that the profile's entries state of a backend."""
    return {entry.kernels[name] for entry in read_profile(path).entries if name in entry.kernels}


def test_a_backend_that_is_named_gets_the_second_revisions_hash(
    repository: Path, profile: Path
) -> None:
    """The files that differ are shown, and which other backend's timings end there."""
    before = stated(profile, "TRITON_ATTN")
    others = stated(profile, "FLEX_ATTENTION")
    said = main("was", "now", str(profile), ["TRITON_ATTN"], repository)
    (after,) = stated(profile, "TRITON_ATTN")
    assert {after} != before
    assert f"{EDITED} | 1 +" in said
    assert f"TRITON_ATTN: {min(before)} -> {after}" in said
    assert stated(profile, "FLEX_ATTENTION") == others
    again = main("now", "now", str(profile), ["TRITON_ATTN"], repository)
    assert "none differs" in again
    assert f"{after}, as before" in again


def test_nothing_but_hashes_changes(repository: Path, profile: Path) -> None:
    """Every other byte is as it was."""
    text = profile.read_text()
    here = kernel_hashes(load(), "gpu", ["TRITON_ATTN"])["TRITON_ATTN"]
    main("was", "now", str(profile), ["TRITON_ATTN"], repository)
    (after,) = stated(profile, "TRITON_ATTN")
    assert profile.read_text() == text.replace(here, after)


def test_what_is_changed_and_not_named_is_said(repository: Path, profile: Path) -> None:
    """Its timings end there, which whoever names backends should see."""
    before = stated(profile, "TRITON_ATTN")
    said = main("was", "now", str(profile), ["FLEX_ATTENTION"], repository)
    assert "TRITON_ATTN: not named" in said
    assert stated(profile, "TRITON_ATTN") == before


@pytest.mark.parametrize(
    ("first", "second", "names", "why"),
    [
        ("now", "was", ["TRITON_ATTN"], r"TRITON_ATTN: the profile states \w+ and now has"),
        ("was", "now", ["TRITON_ATTN", "CPU_ATTN"], "CPU_ATTN: the profile states no hash"),
        ("was", "nowhere", ["TRITON_ATTN"], "nowhere"),
    ],
    ids=["dead in the first", "not in the profile", "no such revision"],
)
def test_what_does_not_hold_writes_nothing(
    repository: Path, profile: Path, first: str, second: str, names: list[str], why: str
) -> None:
    """A hash that the first revision has not, a name or a revision that is not there."""
    text = profile.read_bytes()
    with pytest.raises(InputError, match=why):
        main(first, second, str(profile), names, repository)
    assert profile.read_bytes() == text
