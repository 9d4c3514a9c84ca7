"""What a part of the probe writes down besides its values: sources, reasons, findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from attnctl.findings import Finding
from attnctl.machine import Fact, Status
from attnctl.probe.host import HostError

T = TypeVar("T")


class Ledger:
    """Collects one Fact per leaf of the machine, and the findings, of one part of the probe."""

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self.findings: list[Finding] = []

    def known(self, path: str, source: str) -> None:
        self.facts[path] = Fact("ok", source)

    def missing(self, path: str, source: str, reason: str, status: Status = "unknown") -> None:
        self.facts[path] = Fact(status, source, reason)

    def failed(self, path: str, source: str, error: HostError) -> None:
        self.facts[path] = Fact(status_of(error), source, error.detail)

    def note(self, path: str, source: str, value: T | None, reason: str) -> T | None:
        """The value, with its fact written: known, or absent for `reason` where it is None."""
        if value is None:
            self.missing(path, source, reason, "absent")
        else:
            self.known(path, source)
        return value

    def take(self, path: str, source: str, question: Callable[[], T | None]) -> T | None:
        """The answer of a question, with its fact written; None where it had none."""
        try:
            return self.note(path, source, question(), f"{source} does not say")
        except HostError as error:
            self.failed(path, source, error)
            return None


def status_of(error: HostError) -> Status:
    """The status of a fact whose question failed: "absent" and "timeout" are known, no other is."""
    if error.kind == "absent":
        return "absent"
    return "timeout" if error.kind == "timeout" else "unknown"
