"""One archive that tells what happened on a machine, and names nobody.

Every part is made by itself: one that cannot be made is the very thing to report, and its error
takes its place in about.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from attnctl.bug_report import parts
from attnctl.bug_report.private_names import PrivateNames
from attnctl.documents.files import as_json
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.probe.redact import Redactor

if TYPE_CHECKING:
    from attnctl.smoke.request import Request

SCHEMA = "attnctl.report/1"
FILE = "attnctl-report.zip"
ABOUT = "about.json"


class Part(msgspec.Struct, frozen=True):
    """One file of the archive. what: what it is, in a few words."""

    name: str
    what: str
    data: bytes


class LeftOut(msgspec.Struct, frozen=True):
    """A part that could not be made, with the lines of the error's traceback."""

    name: str
    error: str
    traceback: tuple[str, ...]


class BugReport(msgspec.Struct, frozen=True):
    """The parts in the archive's order, about.json first."""

    parts: tuple[Part, ...]
    left_out: tuple[LeftOut, ...] = ()


def bug_report(
    models: Iterable[str], names: PrivateNames, *, smoke: Request | None = None
) -> BugReport:
    """Everything about this machine, and about these models on it.

    smoke: cases to run, too. InputError: a model's file is not there.
    """
    made, models = _Making(names), tuple(models)
    _refuse_missing(models)
    machine = None
    probed = made.value("machine.json", parts.probed)
    if probed is not None:
        machine, tape = probed
        made.part("tape.json", "what was asked of the machine; replays", tape, redacted=True)
        made.part("machine.json", "the machine, for select --machine", parts.redacted, machine)
    made.part("libraries.json", "copies of libraries, and what is loaded", parts.libraries)
    made.part("list.json", "what the backends declare, and what is usable", parts.listed, machine)
    if machine is not None:
        for number, path in enumerate(models, 1):
            what = f"the decision for model {number}"
            made.part(f"select-{number}.json", what, parts.decided, path, machine)
        made.part("profiles.json", "whether the profiles hold", parts.checked, machine)
    if smoke is not None:
        made.part("smoke.json", "cases, run here", parts.smoked, smoke)
    command = ["attnctl", "report", *(w for m in models for w in ("--model", m))]
    command += ["--smoke"] if smoke is not None else []
    return made.report(command, machine)


def archive(report: BugReport) -> bytes:
    """The parts as a zip file: the same bytes for the same parts."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for part in report.parts:
            info = zipfile.ZipInfo(part.name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            file.writestr(info, part.data)
    return buffer.getvalue()


class _Making:
    """The parts so far, each without what names somebody."""

    def __init__(self, names: PrivateNames) -> None:
        self._names = names
        self._redactor = Redactor()
        self._parts: list[Part] = []
        self._left_out: list[LeftOut] = []

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """What a part is made of; None where it cannot be made, which is noted."""
        try:
            return make()
        except Exception as error:  # whatever it is, it is what the report is about
            from traceback import format_exception

            lines = "".join(format_exception(error)).splitlines()
            text = f"{type(error).__name__}: {error}"
            self._left_out.append(LeftOut(name, self.plain(text), tuple(self.plain(lines))))
            return None

    def part(
        self, name: str, what: str, make: Callable[..., Any], *of: Any, redacted: bool = False
    ) -> None:
        """Adds what `make(*of)` gives. redacted: it needs no more than the names struck out."""
        strike = self._names.without if redacted else self.plain
        data = self.value(name, lambda: as_json(strike(make(*of))))
        if data is not None:
            self._parts.append(Part(name, what, data))

    def plain(self, value: Any) -> Any:
        """A value as JSON knows it, without paths, names, addresses and tokens."""
        plain = msgspec.to_builtins(value, enc_hook=str)
        # names first: one that a path or an address holds is gone with either
        return self._redactor.value(self._names.without(plain))

    def report(self, command: list[str], machine: Machine | None) -> BugReport:
        about = {
            "schema": SCHEMA,
            "command": command,
            "versions": parts.versions(machine),
            "parts": {part.name: part.what for part in self._parts},
            "left_out": self._left_out,
        }
        first = Part(ABOUT, "versions, the command, what could not be had", b"")
        whole = msgspec.structs.replace(first, data=as_json(self.plain(about)))
        return BugReport((whole, *self._parts), tuple(self._left_out))


def _refuse_missing(models: Iterable[str]) -> None:
    """InputError for a misspelt path, which is no bug to report."""
    import os

    for path in models:
        if not os.path.exists(path):  # noqa: PTH110  (pathlib costs start-up here)
            raise InputError(f"--model {path}: no such file; name a config.json or its folder")
