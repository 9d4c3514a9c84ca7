"""Which packages count as installed on a machine: those found, or those that the user assumes.

A machine that was probed keeps what was found on it. A bundled one has no software: its usual
image's packages are assumed, unless the user says otherwise, and every report says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from attnctl.engines.values import EXTRA_PACKAGES
from attnctl.exits import InputError
from attnctl.machine import Machine, Package
from attnctl.registry import Registry

CHOICES = ("all", "none", "usual")


class Assumption(msgspec.Struct, frozen=True):
    """A machine with its assumed packages, which they are, and on whose word ("" where none)."""

    machine: Machine
    packages: tuple[str, ...] = ()
    because: str = ""


def assume(machine: Machine, choice: str | None, registry: Registry) -> Assumption:
    """The machine as this run sees it.

    choice: "all" (every package that a rule of the registry asks about), "none", "usual" (those of
    the vendor's usual image), a comma list of names or name==version, or None: usual for a bundled
    machine, what was found for any other. A list is all that a bundled machine has; elsewhere it
    adds to what was found, and a version in it goes before the version that was found.
    """
    if choice is None:
        choice = "usual" if machine.origin == "bundled" else ""
        if not choice:
            return Assumption(machine)
    if choice == "usual":
        return _usual(machine, registry)
    because = f"--assume-installed {choice}"
    if choice == "all":
        names = dict.fromkeys(registry.packages(), "") | machine.usual_packages
        return _with_assumed(machine, names, because)
    if choice == "none":
        return Assumption(_with_absent(machine, registry.packages(), because, {}), (), because)
    there = {*machine.packages, *machine.usual_packages}
    listed = _listed(choice, {*registry.packages(), *EXTRA_PACKAGES, *there})
    if machine.origin == "bundled":
        absent = [name for name in registry.packages() if name not in listed]
        machine = _with_absent(machine, absent, because, {})
    return _with_listed(machine, listed, because)


def _with_listed(machine: Machine, listed: Mapping[str, str], because: str) -> Assumption:
    """The machine with a list of packages: each counts as there, in the version that was said."""
    replaced = {
        name: machine.packages[name].version or "of no known version"
        for name, version in listed.items()
        if version and _is_there(machine, name) and machine.packages[name].version != version
    }
    kept = {name: one for name, one in machine.packages.items() if name not in replaced}
    bare = msgspec.structs.replace(machine, packages=kept)
    if replaced:
        found = ", ".join(f"{name} {version}" for name, version in replaced.items())
        because = f"{because}, in place of {found}"
    return Assumption(_with_assumed(bare, listed, because).machine, tuple(sorted(listed)), because)


def _is_there(machine: Machine, name: str) -> bool:
    found = machine.packages.get(name)
    return found is not None and found.status == "ok" and found.usable is not False


def _usual(machine: Machine, registry: Registry) -> Assumption:
    usual = machine.usual_packages
    if not usual:
        if machine.origin != "bundled":
            raise InputError(
                f"--assume-installed usual: {machine.name} names no usual packages; "
                "leave the option out to take what was found on it"
            )
        because = f"{machine.name} names no usual packages"
        return Assumption(_with_absent(machine, registry.packages(), because, {}), (), because)
    absent = [name for name in registry.packages() if name not in usual]
    because = f"not in the usual image of {machine.name}"
    bare = _with_absent(machine, absent, because, machine.packages)
    return _with_assumed(bare, usual, f"usual image of {machine.name}")


def _listed(choice: str, known: Iterable[str]) -> dict[str, str]:
    """Package -> version ("" where none was given) of a comma list."""
    listed = {}
    for word in filter(None, (part.strip() for part in choice.split(","))):
        name, _, version = word.partition("==")
        name = name.strip().lower().replace("-", "_")
        if name not in known:
            from attnctl.nearest import did_you_mean

            everything = sorted({*known, *CHOICES})
            hint = did_you_mean(name, everything) or f" Known are {', '.join(everything)}."
            raise InputError(f"--assume-installed {word}: no backend asks for it.{hint}")
        listed[name] = version.strip()
    if not listed:
        raise InputError("--assume-installed: the list is empty; give all, none, usual or names")
    return listed


def _with_assumed(machine: Machine, versions: Mapping[str, str], because: str) -> Assumption:
    """The machine with these packages assumed; one that was found and is usable stays as found."""
    packages = dict(machine.packages)
    assumed = []
    for name, version in versions.items():
        if _is_there(machine, name):
            continue
        source = f"assumed: {because}"
        packages[name] = Package(status="assumed", source=source, version=version or None)
        assumed.append(name)
    there = msgspec.structs.replace(machine, packages=packages)
    return Assumption(there, tuple(sorted(assumed)), because)


def _with_absent(
    machine: Machine, names: Iterable[str], because: str, kept: Mapping[str, Package]
) -> Machine:
    """The machine with these packages absent, but for those in `kept`."""
    absent = Package(status="absent", source=because)
    return msgspec.structs.replace(machine, packages={**dict.fromkeys(names, absent), **kept})
