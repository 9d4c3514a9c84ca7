"""Finding a machine by name or path, in a checkout and in a wheel, and what that costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import attnctl
from attnctl.exits import InputError
from attnctl.machines import find, folder, load, names

ROOT = Path(attnctl.__file__).parent.parent


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("RTX-5090", "rtx5090"),
        ("5090", "rtx5090"),
        ("Tesla T4", "t4"),
        ("a100", "a100-80gb"),
        ("A100-40", "a100-40gb"),
        ("h100-sxm", "h100"),
        ("H100 PCIe", "h100-pcie"),
        ("dgx-spark", "gb10"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Radeon RX 7900 XTX", "rx7900xtx"),
        ("strix_halo", "strix-halo"),
        ("Intel Data Center GPU Max 1550", "max1550"),
        ("Arc B580", "arc-b580"),
        ("b580", "arc-b580"),
        ("genoa", "zen4"),
        ("sapphirerapids", "sapphire-rapids"),
    ],
)
def test_a_machine_is_found_as_people_spell_it(typed: str, name: str) -> None:
    """Case, blanks, dashes and brands do not count, and usual other names lead to the same file."""
    assert find(typed) == folder() / f"{name}.json"
    assert load(typed).name == name


@pytest.mark.parametrize("typed", ["mi250", "h300", "", "h200.json", "./h200", "../machines/h200"])
def test_what_is_no_bundled_name_is_not_found(typed: str) -> None:
    """Near names are not taken for each other, and a path is never a name."""
    assert find(typed) is None


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [("h20", "h200"), ("mi250", "mi250x"), ("rtx409", "rtx4090"), ("sapphire-rapid", "sapphire-")],
)
def test_a_near_name_is_suggested(typed: str, suggested: str) -> None:
    """A misspelt name is refused with the names that it may have meant."""
    with pytest.raises(InputError) as caught:
        load(typed)
    assert f"{typed}: no machine or file of that name: did you mean " in str(caught.value)
    assert suggested in str(caught.value)


def test_a_name_like_no_other_is_answered_with_the_list() -> None:
    """Where nothing is near, the sentence lists what is known."""
    with pytest.raises(InputError) as caught:
        load("abacus")
    assert all(name in str(caught.value) for name in names())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is answered as a path, not with machine names."""
    with pytest.raises(InputError, match="no such machine file: write one with") as caught:
        load(str(tmp_path / "gone.json"))
    assert str(tmp_path / "gone.json") in str(caught.value)


@pytest.mark.parametrize("typed", ["", "h\0", "h" * 5000])
def test_a_name_that_no_file_can_have_is_refused(typed: str) -> None:
    """An empty, overlong or impossible name is refused like any other."""
    with pytest.raises(InputError):
        load(typed)


def test_a_folder_is_not_a_machine_file(tmp_path: Path) -> None:
    """The reason of the operating system is passed on."""
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load(str(tmp_path))


def test_an_installed_package_carries_its_machines(tmp_path: Path) -> None:
    """In a wheel the folder lies inside the package: there it is found, with no checkout around."""
    package = tmp_path / "site" / "attnctl"
    package.mkdir(parents=True)
    for module in ("__init__", "arguments", "exits", "findings", "machine"):
        shutil.copy(ROOT / "attnctl" / f"{module}.py", package)
    for part in ("documents", "machines"):
        shutil.copytree(ROOT / "attnctl" / part, package / part)
    shutil.copytree(folder(), package / "profiles" / "machines")
    # a folder of that name beside the package belongs to somebody else
    (tmp_path / "site" / "profiles" / "machines").mkdir(parents=True)
    code = "from attnctl import machines; print(machines.folder(), machines.load('h200').name)"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == [str(package / "profiles" / "machines"), "h200"]


def test_the_wheel_is_told_to_carry_the_profiles() -> None:
    """pyproject puts profiles/ where the installed package looks for it."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    section = lines.index("[tool.hatch.build.targets.wheel.force-include]")
    assert lines[section + 1] == '"profiles" = "attnctl/profiles"'


def test_loading_a_machine_takes_less_than_a_millisecond() -> None:
    """One file is read; the fastest of fifty loads counts, for the others were interrupted."""
    took = []
    for _ in range(50):
        start = time.perf_counter()
        load("h200")
        took.append(time.perf_counter() - start)
    assert min(took) < 1e-3


def test_loading_a_machine_imports_nothing_heavy() -> None:
    """difflib waits for a misspelt name; torch and the like are never imported."""
    code = "import sys, attnctl.machines as m; m.load('NVIDIA H200'); print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    banned = {"difflib", "torch", "triton", "numpy", "dataclasses", "importlib.metadata", "rich"}
    assert banned.isdisjoint(ran.stdout.split())
