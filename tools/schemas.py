"""Writes docs/schema: the JSON Schemas of what attnctl reads and writes, from its own types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from attnctl.machine import Machine
from attnctl.matrix import Matrix
from attnctl.model.spec import ModelSpec
from attnctl.probe.tape import Tape
from attnctl.profile.document import Profile
from attnctl.report import SelectReport, Sweep

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
TYPES = {
    "machine": Machine,
    "matrix": Matrix,
    "model": ModelSpec,
    "profile": Profile,
    "select": SelectReport,
    "select-sweep": Sweep,
    "tape": Tape,
}


def documents() -> dict[str, bytes]:
    """File name -> its text."""
    return {f"{name}.schema.json": _schema(name, kind) for name, kind in TYPES.items()}


def _schema(name: str, kind: Any) -> bytes:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"attnctl {name}",
    }
    text = msgspec.json.encode(head | msgspec.json.schema(kind))
    return msgspec.json.format(text, indent=2) + b"\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_bytes(text)
