"""Renews the hashes of kernel sources in a profile, where what runs is alike in two revisions.

    python tools/restamp.py FIRST SECOND PROFILE BACKEND ...     FIRST, SECOND: git revisions

The timings of a BACKEND must be alive in FIRST; they get the hash of SECOND. That the two launch
the same with the same arguments is asserted by whoever names the backend, and is for them to know:
of the files that are hashed, the difference is shown. What is not named stays as it is.
Exit codes: 0 written, or nothing to write; 2 nothing written, and why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from attnctl.exits import InputError
from attnctl.profile.canonical import encode
from attnctl.profile.document import read_to_add
from attnctl.profile.keys import DeviceKind
from attnctl.profile.values import Entry, Profile

ASK = """
import json, sys
from pathlib import Path
import attnctl
root = Path(sys.argv[1]).resolve()
assert Path(attnctl.__file__).resolve().is_relative_to(root), attnctl.__file__
from attnctl.profile.hashes import KernelHashes
from attnctl.registry import load
kind, names = sys.argv[2], sys.argv[3:]
hashes, found = KernelHashes(), {}
for backend in load().backends:
    if backend.name in names:
        asked = (backend, kind) if "kind" in KernelHashes.of.__annotations__ else (backend,)
        if hashes.of(*asked) is None:
            continue
        files = sorted(str(one.resolve().relative_to(root)) for one in hashes.files(*asked))
        found[backend.name] = [hashes.of(*asked), files]
print(json.dumps(found))
"""
"""Asks a tree by its own rule; the oldest ones hash what every kind of device runs."""


class Hashed(NamedTuple):
    """A backend's kernels in one revision."""

    hash: str
    files: tuple[str, ...]


def main(first: str, second: str, path: str, names: Sequence[str], root: Path) -> str:
    """What was done, for people. InputError: a hash or a name does not hold; nothing is written."""
    profile = read_to_add(path)
    stated: dict[str, set[str]] = {}
    for entry in profile.entries:
        for name, value in entry.kernels.items():
            stated.setdefault(name, set()).add(value)
    was, now = (hashed(root, one, profile.key.kind, tuple(stated)) for one in (first, second))
    for name in names:
        _refuse(name, stated.get(name, set()), was.get(name), now.get(name), first, second)
    files = sorted({file for tree in (was, now) for name in names for file in tree[name].files})
    said = [_difference(root, first, second, files)]
    said += (f"{name}: {_change(was[name].hash, now[name].hash)}" for name in dict.fromkeys(names))
    for name in sorted(stated.keys() - set(names)):
        if was.get(name) != now.get(name):
            said.append(f"{name}: not named, and as it was: what is changed there ends its timings")
    again = restamped(profile, {name: now[name].hash for name in names})
    if again != profile:
        Path(path).write_bytes(encode(again))
    return "\n".join(said)


def _change(was: str, now: str) -> str:
    return f"{was}, as before" if was == now else f"{was} -> {now}"


def restamped(profile: Profile, new: Mapping[str, str]) -> Profile:
    """The profile with these hashes where an entry states one of that backend."""
    return msgspec.structs.replace(
        profile, entries=tuple(_restamped(entry, new) for entry in profile.entries)
    )


def _restamped(entry: Entry, new: Mapping[str, str]) -> Entry:
    kernels = {name: new.get(name, hashed) for name, hashed in entry.kernels.items()}
    return msgspec.structs.replace(entry, kernels=kernels)


def _refuse(
    name: str, stated: set[str], was: Hashed | None, now: Hashed | None, first: str, second: str
) -> None:
    if not stated:
        raise InputError(f"{name}: the profile states no hash of it")
    for found, revision in ((was, first), (now, second)):
        if found is None:
            raise InputError(f"{name}: {revision} has no kernel of that name")
    assert was is not None
    dead = stated - {was.hash}
    if dead:
        raise InputError(
            f"{name}: the profile states {', '.join(sorted(dead))} and {first} has {was.hash}: "
            "of what its times were taken is not known"
        )


def hashed(root: Path, revision: str, kind: DeviceKind, names: Sequence[str]) -> dict[str, Hashed]:
    """Backend -> its hash and its sources in a revision of the repository, by that one's rule."""
    packed = _git(root, "archive", revision, "attnctl")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        # -c puts the working directory before what is installed
        line = [sys.executable, "-c", ASK, folder, kind, *names]
        ran = subprocess.run(line, cwd=folder, capture_output=True, check=False)
        if ran.returncode:
            raise InputError(f"{revision} does not say its hashes: {ran.stderr.decode().strip()}")
    found = json.loads(ran.stdout)
    return {name: Hashed(value, tuple(files)) for name, (value, files) in found.items()}


def _difference(root: Path, first: str, second: str, files: Sequence[str]) -> str:
    shown = _git(root, "diff", "--stat", first, second, "--", *files).decode().rstrip()
    return shown or "of the files that are hashed none differs"


def _git(root: Path, *words: str) -> bytes:
    ran = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=False)
    if ran.returncode:
        raise InputError(ran.stderr.decode().strip())
    return ran.stdout


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit((__doc__ or "").strip())
    try:
        print(main(*sys.argv[1:4], sys.argv[4:], Path(__file__).parent.parent))
    except InputError as why:
        print(why, file=sys.stderr)
        sys.exit(2)
