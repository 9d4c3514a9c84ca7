"""The good documents that are damaged, by kind; and the words that damage borrows from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from attnctl.profile.canonical import encode
from tests.commands.running import MODELS, ROOT
from tests.fuzz.test_encoders import CONFIGS
from tests.model.test_fuzz import SEEDS
from tests.profile.factory import GRID, profile

# readings of public configs, where the project is built
FACTS = ROOT.parent / "shared" / "cases" / "model_facts.jsonl"
WORKLOAD = [
    {"phase": "decode", "batch": 8, "context": 4096, "weight": 3},
    {"phase": "prefill", "batch": 1, "context": 2048, "query": 512},
]
LAUNCH = {
    "kernel": "paged",
    "variant": "",
    "shared_bytes": 1024,
    "shared_limit_bytes": 65536,
    "registers": 32,
    "spills_bytes": 0,
}
TRIAL = {"case": "paged()", "status": "pass", "seconds": 0.1, "launches": [LAUNCH]}
REPORT = {
    "schema": "attnctl.smoke/1",
    "exit_code": 0,
    "torch": "2.13.0",
    "triton": "3.7.1",
    "backends": [
        {
            "backend": "TRITON_ATTN",
            "device": "sm_90",
            "level": "compile",
            "trials": [TRIAL],
        }
    ],
}
SIDECAR = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}


class Corpus:
    """Documents by kind, read once."""

    @cached_property
    def config(self) -> list[Any]:
        files = _documents(sorted(MODELS.glob("*.json")))
        shared = FACTS.read_text("utf-8").splitlines() if FACTS.is_file() else []
        facts = [json.loads(line)["config"] for line in shared if line.strip()]
        return [*files, *SEEDS, *CONFIGS, *facts]

    @cached_property
    def machine(self) -> list[Any]:
        return _documents(sorted((ROOT / "profiles" / "machines").glob("*.json")))

    @cached_property
    def tape(self) -> list[Any]:
        return _documents(sorted((ROOT / "tests" / "machines").glob("*.tape.json")))

    @cached_property
    def profile(self) -> list[Any]:
        grids = (GRID[:2], (*GRID[:2], *GRID[9:11]))
        models = (("llama-3.1-8b",), ("gpt-oss-20b",), ("qwen3-next-80b-a3b", "deepseek-v3.2"))
        made = (profile(*names, grid=grid) for names in models for grid in grids)
        return [json.loads(encode(one)) for one in made]

    @cached_property
    def workload(self) -> list[Any]:
        return [WORKLOAD, WORKLOAD[:1]]

    @cached_property
    def report(self) -> list[Any]:
        return [REPORT]

    @cached_property
    def sidecar(self) -> list[Any]:
        return [SIDECAR]

    @cached_property
    def names(self) -> list[str]:
        """Every key of the configs and machines."""
        return sorted({name for one in (*self.config, *self.machine) for name in _names(one)})


def _documents(paths: list[Path]) -> list[Any]:
    assert paths
    return [msgspec.json.decode(path.read_bytes()) for path in paths]


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)
