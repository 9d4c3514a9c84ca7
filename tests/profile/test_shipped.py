"""The shipped profiles: canonical, alive, and borne out by the machines that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnctl import machines
from attnctl.assume import assume
from attnctl.machine import Gpu, Machine
from attnctl.profile.canonical import encode
from attnctl.profile.checks import check
from attnctl.profile.document import key_of, read_profile
from attnctl.profile.places import bundled_folder, json_files
from attnctl.profile.rederive import rederive
from attnctl.profile.values import Key
from attnctl.registry import load

SHIPPED = json_files(bundled_folder())


def owner(key: Key) -> tuple[Machine, Gpu | None] | None:
    """The bundled machine whose device this is; a processor's count of cores is anybody's."""
    for name in machines.names():
        box = machines.load(name)
        gpu = box.gpus[0] if box.gpus else None
        here = key_of(box, gpu)
        same = (here.vendor, here.arch, here.pci_id) == (key.vendor, key.arch, key.pci_id)
        if same and (gpu is None or here.unit_count == key.unit_count):
            return assume(box, "usual", load()).machine, gpu
    return None


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_holds(path: Path) -> None:
    """It is in its canonical form, agrees with its timings, and its kernels are unchanged.

    After an edit of a kernel: tune anew, or `attnctl profile prune FILE`.
    """
    profile = read_profile(path)
    assert path.read_bytes() == encode(profile)
    found = owner(profile.key)
    assert found is not None, f"{path.name}: no bundled machine is a {profile.key}"
    checked = check(str(path), profile, load(), *found)
    assert checked.problems == ()
    assert sum(len(entry.points) for entry in profile.entries) > 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_its_picks_come_out_again_without_the_device(path: Path) -> None:
    """From the timings and the rules of the bundled machine."""
    profile = read_profile(path)
    found = owner(profile.key)
    assert found is not None
    verified = rederive(str(path), profile, load(), found[0])
    assert [one.differences for one in verified.shapes] == [()] * len(profile.entries)


def test_nothing_else_lies_beside_them() -> None:
    """No journals, no locks, no parts of files: all of it would be shipped."""
    folder = bundled_folder()
    assert not folder.is_dir() or set(folder.iterdir()) == set(SHIPPED)
