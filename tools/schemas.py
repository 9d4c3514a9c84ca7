"""Writes docs/schema: the JSON Schemas of what attnctl reads and writes, from its own types."""

from __future__ import annotations

from pathlib import Path

from attnctl.codes import Meanings
from attnctl.documents.schema import json_schema
from attnctl.machine import Machine
from attnctl.machines.libraries import Libraries
from attnctl.model.spec import ModelSpec
from attnctl.probe.tape import Tape
from attnctl.profile.checks import Check
from attnctl.profile.diff import Difference
from attnctl.profile.listing import Layers, Listing
from attnctl.profile.rederive import Verification
from attnctl.profile.values import Document
from attnctl.selection.report import SelectReport, Sweep
from attnctl.smoke.trials import SmokeReport
from attnctl.support.table import Matrix
from attnctl.tune.report import TuneReport
from attnctl.warming.values import WarmReport

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
TYPES = {
    "codes": Meanings,
    "libraries": Libraries,
    "machine": Machine,
    "matrix": Matrix,
    "model": ModelSpec,
    "profile": Document,
    "profile-check": Check,
    "profile-diff": Difference,
    "profile-layers": Layers,
    "profile-list": Listing,
    "profile-verify": Verification,
    "select": SelectReport,
    "select-sweep": Sweep,
    "smoke": SmokeReport,
    "tape": Tape,
    "tune": TuneReport,
    "warm": WarmReport,
}


def documents() -> dict[str, bytes]:
    """File name -> its text."""
    return {f"{name}.schema.json": json_schema(name, kind) for name, kind in TYPES.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_bytes(text)
