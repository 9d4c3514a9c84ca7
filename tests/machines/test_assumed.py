"""Which packages count as installed, and on whose word."""

from __future__ import annotations

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.machine import Machine, Package
from attnctl.machines import load as load_machine
from attnctl.machines.assumed import assume
from attnctl.registry import load
from tests import machine_factory

REGISTRY = load()
BUNDLED = load_machine("h200")


def probed(**packages: Package) -> Machine:
    machine = machine_factory.cuda(9, packages=())
    return msgspec.structs.replace(machine, origin="probed", packages=packages)


def test_a_probed_machine_assumes_nothing() -> None:
    """What was found on it is what counts."""
    machine = probed(torch=Package(status="ok", source="probe", version="2.13.0"))
    found = assume(machine, None, REGISTRY)
    assert found.machine is machine
    assert (found.packages, found.because) == ((), "")


def test_a_bundled_machine_assumes_its_usual_image() -> None:
    """Its usual packages are assumed with their versions, and every other one is absent."""
    found = assume(BUNDLED, None, REGISTRY)
    assert found.packages == tuple(sorted(BUNDLED.usual_packages))
    assert found.machine.packages["torch"].version == BUNDLED.usual_packages["torch"]
    assert found.machine.packages["torch"].status == "assumed"
    assert found.machine.packages["aiter"].status == "absent"
    assert "usual image of h200" in found.machine.packages["aiter"].source


def test_all_is_every_package_that_a_rule_asks_about() -> None:
    """Nothing that a rule of the registry names is missing."""
    found = assume(probed(), "all", REGISTRY)
    assert set(REGISTRY.packages()) <= set(found.packages)
    assert all(found.machine.packages[name].status == "assumed" for name in found.packages)


def test_all_keeps_what_was_found() -> None:
    """A package that is there and usable keeps its version; one that cannot run is assumed to."""
    torch = Package(status="ok", source="probe", version="2.13.0")
    triton = Package(status="ok", source="probe", usable=False, reason="no compiler")
    found = assume(probed(torch=torch, triton=triton), "all", REGISTRY)
    assert found.machine.packages["torch"] == torch
    assert found.machine.packages["triton"].status == "assumed"
    assert "torch" not in found.packages


def test_none_takes_away_what_was_found() -> None:
    """With "none" nothing is installed, whatever the probe saw."""
    torch = Package(status="ok", source="probe", version="2.13.0")
    found = assume(probed(torch=torch), "none", REGISTRY)
    assert {one.status for one in found.machine.packages.values()} == {"absent"}


def test_a_list_adds_to_what_was_found() -> None:
    """On a probed machine a list is what would be installed besides."""
    torch = Package(status="ok", source="probe", version="2.13.0")
    found = assume(probed(torch=torch), "Flash-Attn==2.8.3, triton", REGISTRY)
    assert found.packages == ("flash_attn", "triton")
    assert found.machine.packages["flash_attn"].version == "2.8.3"
    assert found.machine.packages["torch"] == torch


def test_a_list_is_all_that_a_bundled_machine_has() -> None:
    """On a bundled machine nothing but the list is installed."""
    found = assume(BUNDLED, "torch", REGISTRY)
    there = [n for n, one in found.machine.packages.items() if one.status != "absent"]
    assert there == ["torch"]


@pytest.mark.parametrize("choice", ["trton", " , ", "torch,nothing-of-the-sort"])
def test_a_list_that_makes_no_sense_is_refused(choice: str) -> None:
    """A package that no rule asks about would change nothing: it is a mistake."""
    with pytest.raises(InputError, match="--assume-installed"):
        assume(BUNDLED, choice, REGISTRY)


def test_usual_needs_a_usual_image() -> None:
    """A probed machine has none, and says so."""
    with pytest.raises(InputError, match="names no usual packages"):
        assume(probed(), "usual", REGISTRY)


def test_a_listed_version_goes_before_the_one_found() -> None:
    """The user's word counts, and the report says what it replaced."""
    torch = Package(status="ok", source="probe", version="2.13.0", build={"cuda": "13.0"})
    found = assume(probed(torch=torch), "torch==9.9", REGISTRY)
    there = found.machine.packages["torch"]
    assert (there.status, there.version, there.build) == ("assumed", "9.9", {})
    assert found.packages == ("torch",)
    assert found.because == "--assume-installed torch==9.9, in place of torch 2.13.0"


@pytest.mark.parametrize("word", ["torch", "torch==2.13.0"])
def test_a_listed_package_that_was_found_is_kept_and_named(word: str) -> None:
    """What was found agrees with the list, so its build stays; it counts among the assumed."""
    torch = Package(status="ok", source="probe", version="2.13.0", build={"cuda": "13.0"})
    found = assume(probed(torch=torch), word, REGISTRY)
    assert found.machine.packages["torch"] == torch
    assert (found.packages, found.because) == (("torch",), f"--assume-installed {word}")


def test_a_listed_version_replaces_that_of_the_usual_image() -> None:
    """On a bundled machine too, the version is the one that was said."""
    found = assume(BUNDLED, "torch==9.9", REGISTRY)
    assert found.machine.packages["torch"].version == "9.9"
    assert found.packages == ("torch",)
