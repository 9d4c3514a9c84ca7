"""The shipped profiles: canonical, alive, and borne out by the machines that they name."""

from __future__ import annotations

from attnctl import machines
from attnctl.machine import Gpu, Machine
from attnctl.machines.assumed import assume
from attnctl.profile.canonical import encode
from attnctl.profile.checks import check
from attnctl.profile.document import key_of, read_profile
from attnctl.profile.keys import Key
from attnctl.profile.places import bundled_folder, json_files
from attnctl.profile.rederive import rederive
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


def test_every_shipped_profile_holds() -> None:
    """Each is in its canonical form, agrees with its timings, and its kernels are unchanged.

    After an edit of a kernel: tune anew, or `attnctl profile prune FILE`; after one that changes
    nothing of what runs: `tools/restamp.py`.
    """
    for path in SHIPPED:
        profile = read_profile(path)
        assert path.read_bytes() == encode(profile), path.name
        found = owner(profile.key)
        assert found is not None, f"{path.name}: no bundled machine is a {profile.key}"
        checked = check(str(path), profile, load(), *found)
        assert checked.problems == (), path.name
        assert sum(len(entry.points) for entry in profile.entries) > 0


def test_their_picks_come_out_again_without_the_device() -> None:
    """From the timings and the rules of the bundled machine."""
    for path in SHIPPED:
        profile = read_profile(path)
        found = owner(profile.key)
        assert found is not None
        verified = rederive(str(path), profile, load(), found[0])
        assert [one.differences for one in verified.shapes] == [()] * len(profile.entries)


def test_the_folder_of_shipped_profiles_holds_them_alone() -> None:
    """No journals, no locks, no parts of files: all of it would be shipped."""
    folder = bundled_folder()
    if folder.is_dir():
        assert SHIPPED
        assert set(folder.iterdir()) == set(SHIPPED)
