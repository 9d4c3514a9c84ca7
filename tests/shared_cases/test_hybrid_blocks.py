"""vLLM's recorded block and page sizes of hybrids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnctl.engines import vllm

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def entries() -> list[dict[str, Any]]:
    path = CASES / "hybrid_blocks.json"
    assert path.is_file(), (
        f"{path} is missing: these tests need the shared cases beside the checkout"
    )
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def test_every_recorded_hybrid_gets_its_sizes() -> None:
    """Shapes, dtypes, state bytes, block size and padding are those that vLLM recorded."""
    wrong = []
    for entry in entries():
        wanted = entry.pop("answer")
        found = vllm.hybrid_blocks(entry)
        if found["error"] or any(found[key] != value for key, value in wanted.items()):
            wrong.append((entry["name"], entry["platform"], entry["arch"], found))
    assert wrong == []


def test_the_recorded_hybrids_cover_every_kind_of_state() -> None:
    """A shortened file would leave kinds of state untested."""
    kinds = {entry["state"]["kind"] for entry in entries()}
    assert kinds == {"mamba1", "mamba2", "linear", "short_conv", "gdn", "kda"}
