"""Blocks that the tests do not run as they stand: what is said in their place, and why.

A block as written may take hours, or ask for what is not here. Each piece that is replaced for the
test is listed, and nothing else is; `python -m tests.docs` prints the table, and test_blocks fails
where a row fits no block or a piece is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.commands.running import MODELS, ROOT
from tests.profile.here import profile_of_here

PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not path.relative_to(ROOT).parts[0].startswith((".", "build", "dist"))
)
"""Every page of the checkout, but for what stands in the folders of tools."""

POINTS = '[{"phase": "decode", "batch": 1, "context": 64}]'


Given = Mapping[str, "str | Path | Callable[[], str] | None"]


class Bound(NamedTuple):
    """Pieces of a block that the test replaces, and files that it takes for granted.

    page, has: the one block of that page that holds these words. said: piece, a regular expression
    so that a figure may change -> what is run in its place. given: path -> text, a file to copy,
    what makes the text, or None: not there, since a command is to make it.
    """

    page: str
    has: str
    why: str
    said: Mapping[str, str]
    given: Given


class Elsewhere(NamedTuple):
    """A block that no test of this folder runs. by: the file that does run it."""

    page: str
    has: str
    why: str
    by: str


BOUNDS = (
    Bound(
        "docs/smoke.md",
        "smoke --all --determinism",
        "every case of every backend takes ten minutes",
        {
            "smoke --all   ": "smoke --all --op short_conv --quick   ",
            "--device interpret ": "--device interpret --case 'gdn(queries=5)' ",
            "--model config.json ": "--model config.json --op short_conv --quick ",
            "--determinism ": "--determinism --op short_conv --quick ",
            "--all --junit": "--all --op short_conv --quick --junit",
            "--all --perf": "--all --case 'short_conv(queries=5)' --perf",
        },
        {"config.json": MODELS / "lfm2-1.2b.json"},
    ),
    Bound(
        "docs/smoke.md",
        "--perf --baseline before.json",
        "every case of every backend takes minutes, and on a shared machine some are slower",
        {
            "--all --perf --json": "--all --case 'short_conv(queries=5)' --perf --json",
            "--all --perf --baseline": (
                "--all --case 'short_conv(queries=5)' --perf --slower 900 --baseline"
            ),
        },
        {},
    ),
    Bound(
        "docs/smoke.md",
        "--compile-for all --quick",
        "every kernel for nine targets takes a quarter of an hour",
        {
            "sm_90,gfx942 ": "sm_90,gfx942 --backend SHORT_CONV_ATTN --quick ",
            "all --quick ": "all --quick --backend SHORT_CONV_ATTN ",
            "--model config.json ": "--model config.json --op short_conv ",
        },
        {"config.json": MODELS / "lfm2-1.2b.json"},
    ),
    Bound(
        "docs/smoke.md",
        "gfx942 --baseline before.json",
        "every kernel for a target takes minutes; pip has no network here, and finds its Triton",
        {
            "gfx942 --json": "gfx942 --backend SHORT_CONV_ATTN --quick --json",
            "gfx942 --baseline": "gfx942 --backend SHORT_CONV_ATTN --quick --baseline",
        },
        {},
    ),
    Bound(
        "docs/smoke.md",
        "--every-knob --journal",
        "every setting for nine targets takes hours of a core",
        {"all --every-knob": "sm_90 --case 'linear(queries=1)' --every-knob"},
        {},
    ),
    Bound(
        "docs/profiles.md",
        "attnctl warm",
        "the profile of an H200 is refused on other devices",
        {"--profile h200": "--profile tuned.json"},
        {"tuned.json": profile_of_here},
    ),
    Bound(
        "profiles/README.md",
        "-o profiles/tuned/h200.json",
        "minutes a model, and the first on an H200",
        {
            "for model in llama[^;]*": "for model in llama-3.1-8b",
            "--backend TRITON_ATTN --backend FLASH_ATTN": "--backend CPU_ATTN",
            r"--budget \w+ -o profiles/tuned/h200": "--workload points.json --budget 2s "
            "-o profiles/tuned/h200",
            "for model in lfm2[^;]*": "for model in lfm2-1.2b",
            r"examples/workloads/desktop.json --budget \w+": "points.json --budget 2s",
        },
        {
            "points.json": POINTS,
            "profiles/tuned/h200.json": None,
            "profiles/tuned/zen3.json": None,
        },
    ),
    Bound(
        "benchmarks/results/README.md",
        "regret.py --repeat",
        "every setting at each of twenty points takes half an hour",
        {"examples/workloads/laptop.json --budget none": "points.json --budget 2s"},
        {"points.json": POINTS},
    ),
    Bound(
        "benchmarks/results/README.md",
        "regret_gpu.py",
        "minutes of a GPU; on a processor it goes the same way",
        {
            r"models/llama(.|\n)*--tune-only \S+": "models/qwen2.5-7b.json",
            r"--backend (.|\n)*--ahead": "--backend CPU_ATTN --workload points.json --ahead",
            r"--ahead \w+[\s\\]+--tune \w+ --regret \w+ --repeat \w+": "--off points.json "
            "--ahead 4s --tune 2s --regret 4s --repeat 2s",
        },
        {"points.json": POINTS},
    ),
)
ELSEWHERE = (
    Elsewhere("README.md", ".venv/bin/pip install", "makes an environment", ".ci/run"),
    Elsewhere("README.md", "make test", "makes an environment, runs the tests", ".ci/run"),
    Elsewhere("CONTRIBUTING.md", "make test", "the same command", ".ci/run"),
)
FOLLOWED = "docs/adding-a-backend.md", "tests/docs/test_adding_a_backend.py"
"""A page whose blocks are one walk, with files between: that test compares every output."""
