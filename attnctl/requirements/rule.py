"""What a rule is, and what it may look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from attnctl.findings import Finding
from attnctl.layer import Layer
from attnctl.machine import VENDORS, Gpu, Machine, Platform


class Subject(msgspec.Struct, frozen=True, gc=False):
    """One device of a machine, and one layer. gpu is None on a CPU."""

    machine: Machine
    platform: Platform
    gpu: Gpu | None
    layer: Layer

    def source(self, fact: str) -> str:
        """Where a machine fact came from; `fact` is relative to the device or absolute."""
        found = self.machine.facts.get(fact) or self.machine.facts.get(self.device_path + fact)
        return found.source if found else f"machine {self.machine.name}"

    @property
    def device_path(self) -> str:
        vendor = VENDORS.get(self.platform)
        return f"{vendor}.gpus.{self.gpu.index}." if vendor and self.gpu else "cpu."


class Rule(NamedTuple):
    """A named check. `about` says what it looks at, so that it is not asked again in vain.

    packages: the packages whose presence it asks about.
    """

    code: str
    about: Literal["machine", "layer", "both"]
    check: Callable[[Subject], Finding | None]
    packages: tuple[str, ...] = ()
