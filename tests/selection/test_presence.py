"""What `attnctl list` says of a machine: installed and usable are two answers."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.machine import Machine, Package
from attnctl.profile.find import Target
from attnctl.registry import load
from attnctl.selection.presence import on_machine
from attnctl.support.table import Matrix, Row, matrix
from tests import machine_factory
from tests.commands.running import run

REGISTRY = load()
TABLE = matrix(REGISTRY)


def on(machine: Machine) -> Matrix:
    return on_machine(
        TABLE, REGISTRY, Target(machine, machine.gpus[0] if machine.gpus else None, 0)
    )


def row(name: str, machine: Machine) -> Row:
    (found,) = (one for one in on(machine).rows if one.name == name)
    return found


def test_a_package_without_its_device_is_installed_and_not_usable() -> None:
    """FlashMLA on a GPU that it has no kernels for."""
    found = row("FLASHMLA", machine_factory.cuda(8, 0))
    assert (found.installed, found.usable) == ("yes", "no")
    assert found.not_usable == (
        "compute_capability: wants compute capability 9.x (FlashMLA's dense kernel), found 8.0",
    )


def test_a_device_without_the_package_is_neither() -> None:
    """The reason is the package alone."""
    found = row("FLASHMLA", machine_factory.cuda(9, 0, packages=("torch", "triton")))
    assert (found.installed, found.usable) == ("no", "no")
    assert found.not_usable == ("package_missing: wants flash_mla or vllm, found not installed",)


def test_an_installed_package_that_cannot_run_is_not_usable() -> None:
    """A torch of two builds is there, and serves nothing."""
    broken = Package(
        status="ok", source="", version="2.13.0", usable=False, reason="a mix of two builds"
    )
    bare = machine_factory.cuda(9, 0)
    machine = msgspec.structs.replace(bare, packages={**bare.packages, "torch": broken})
    found = row("TRITON_ATTN", machine)
    assert (found.installed, found.usable) == ("yes", "no")
    assert "a mix of two builds" in found.not_usable[0]


def test_one_of_several_packages_is_enough() -> None:
    """Any FlashAttention will do, and none of them is too few."""
    with_two = machine_factory.cuda(9, 0, packages=("torch", "flash_attn"))
    assert (row("FLASH_ATTN", with_two).installed, row("FLASH_ATTN", with_two).usable) == (
        ("yes", "yes")
    )
    without = machine_factory.cuda(9, 0, packages=("torch",))
    found = row("FLASH_ATTN", without)
    assert (found.installed, found.usable) == ("no", "no")
    assert found.not_usable[0].startswith("flash_version: wants FlashAttention 2, 3 or 4")


def test_elsewhere_the_packages_of_its_own_platform_count() -> None:
    """On a processor AITER is missing all the same."""
    found = row("ROCM_AITER_MLA", machine_factory.cpu())
    assert (found.installed, found.usable) == ("no", "no")
    assert found.not_usable == ("platform: wants AMD (ROCm), found a CPU",)


def test_a_machine_whose_software_nobody_asked_about_is_unknown() -> None:
    """Neither yes nor no."""
    machine = msgspec.structs.replace(machine_factory.cuda(9, 0), packages={})
    for name in ("FLASH_ATTN", "TRITON_ATTN"):
        found = row(name, machine)
        assert (found.installed, found.usable) == ("unknown", "unknown")


def test_the_command_answers_for_this_machine_or_another() -> None:
    """Two columns, two keys, and a line that counts."""
    found = run("list", "--machine", "h200", "--json").json
    rows = {one["name"]: (one["installed"], one["usable"]) for one in found["rows"]}
    assert found["machine"] == "h200"
    assert rows["FLASH_ATTN"] == ("yes", "yes")
    assert rows["ROCM_AITER_FA"] == ("no", "no")
    here = run("list", "--json").json["rows"]
    assert all(one["installed"] and one["usable"] for one in here)
    text = run("list", "--machine", "h200")
    assert text.out.splitlines()[0].split()[-2:] == ["installed", "usable"]
    assert "\nusable on h200: " in text.out
    assert (
        "usable        no: platform: wants a CPU" in run("list", "CPU_ATTN", "--machine", "t4").out
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--machine", "h2000"), "h2000"),
        (("--markdown", "--machine", "h200"), "--markdown is what is declared"),
    ],
)
def test_what_does_not_go_is_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    """Exit code 2."""
    found = run("list", *words)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err
