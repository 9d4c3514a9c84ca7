"""What the parts of a bug report are made of; each loads what it needs, and may raise anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from attnctl import __version__
from attnctl.exits import InputError
from attnctl.machine import Machine

if TYPE_CHECKING:
    from attnctl.registry import Registry
    from attnctl.smoke.request import Request


def probed() -> tuple[Machine, Callable[[], Any]]:
    """The machine, and what gives its tape as JSON knows it; the tape is redacted already."""
    from attnctl.machines.taping import probe_recorded

    machine, tape = probe_recorded()
    return machine, lambda: msgspec.json.decode(tape)


def redacted(machine: Machine) -> Machine:
    """The machine without UUIDs and timings."""
    from attnctl.probe.redact import redact_machine

    return redact_machine(machine)


def libraries() -> Any:
    from attnctl.probe.libraries import probe_libraries
    from attnctl.probe.realhost import RealHost

    return probe_libraries(RealHost())


def listed(machine: Machine | None) -> Any:
    from attnctl.profile.find import Target
    from attnctl.selection.presence import on_machine
    from attnctl.support.table import matrix

    registry = _registry()
    table = matrix(registry)
    if machine is None:  # the probe broke off; what is declared is known all the same
        return table
    return on_machine(table, registry, Target(machine, next(iter(machine.gpus), None), 0))


def decided(path: str, machine: Machine) -> Any:
    """What `attnctl select --model PATH --json` answers on this machine."""
    from os import environ

    from attnctl.layer import Options
    from attnctl.model import read_model
    from attnctl.profile.places import shelf
    from attnctl.selection.answer import answers

    profiles = shelf(None, environ)
    (found,) = answers([read_model(path)], [machine], _registry(), Options(), profiles=profiles)
    return found


def checked(machine: Machine) -> Any:
    """One check per profile of one's own or bundled; where one does not read, its sentence."""
    from os import environ

    from attnctl.profile.checks import check
    from attnctl.profile.find import known_files, open_profile
    from attnctl.profile.hashes import KernelHashes

    registry, hashes = _registry(), KernelHashes()
    gpu = machine.gpus[0] if machine.gpus else None
    found: list[Any] = []
    for path in known_files(environ):
        try:
            opened = open_profile(str(path), environ)
        except InputError as error:
            found.append(str(error))
            continue
        found.append(check(opened.path, opened.profile, registry, machine, gpu, hashes))
    return found


def smoked(request: Request) -> Any:
    from attnctl.smoke.running import prepare, run

    return run(prepare(request))


def _registry() -> Registry:
    from attnctl.registry import load

    return load()


def versions(machine: Machine | None) -> dict[str, Any]:
    import os
    import platform

    system = os.uname()
    return {
        "attnctl": __version__,
        "python": platform.python_version(),
        "system": f"{system.sysname} {system.release} {system.machine}",
        "packages": {
            name: package.version or "of no known version"
            for name, package in sorted(machine.packages.items() if machine else ())
            if package.status == "ok"
        },
    }
