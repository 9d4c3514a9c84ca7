"""Reports from the field, as the shared cases have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def report(name: str) -> dict[str, Any]:
    """The report of this id. AssertionError: the shared cases are not beside the checkout."""
    path = CASES / "field_reports.json"
    assert path.is_file(), (
        f"{path} is missing: these tests need the shared cases beside the checkout"
    )
    (case,) = [case for case in json.loads(path.read_text())["cases"] if case["id"] == name]
    found: dict[str, Any] = case
    return found
