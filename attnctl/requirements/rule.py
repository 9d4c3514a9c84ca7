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

    packages: the packages whose presence it asks about. wanted: what it accepts, for the support
    table; rules of features say "yes", "no", or the condition. platforms: those where it asks
    anything; none: everywhere. Backends that hold the same Rule object share its answers.
    """

    code: str
    about: Literal["machine", "layer", "both"]
    check: Callable[[Subject], Finding | None]
    packages: tuple[str, ...] = ()
    wanted: str = ""
    platforms: tuple[str, ...] = ()


def on(platform: str, *rules: Rule) -> list[Rule]:
    """These rules, asked on one platform only ("cuda", "rocm", "xpu" or "cpu")."""
    return [_on(platform, rule) for rule in rules]


def _on(platform: str, rule: Rule) -> Rule:
    def check(subject: Subject) -> Finding | None:
        return rule.check(subject) if subject.platform == platform else None

    about: Literal["machine", "both"] = "machine" if rule.about == "machine" else "both"
    return rule._replace(about=about, check=check, platforms=(platform,))
