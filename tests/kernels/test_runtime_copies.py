"""Copies of what open_backend gives: of every backend, before and after it computed."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from attnctl.ops.case import split_case
from attnctl.ops.catalog import case_of, try_case
from attnctl.registry import load
from attnctl.runtime import open_backend
from tests.commands.running import ROOT

NAMES = [one.name for one in load().backends if one.kernel != "planned"]
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda runtime: pickle.loads(pickle.dumps(runtime)),
}
COMPUTE = [
    ("CPU_ATTN", {"direct_rows": 1, "threads": 1}, "paged(page=32)"),
    ("CPU_MLA", {}, "mla()"),
    ("CPU_MLA_SPARSE", {}, "mla_sparse()"),
    ("GDN_ATTN", {"chunks.chunk": 32}, "gdn()"),
    ("SHORT_CONV_ATTN", {"tile": 512}, "short_conv()"),
    ("TRITON_ATTN", {"segments": 2}, "paged()"),
    ("TRITON_MLA", {"keys": 16}, "mla()"),
    ("FLEX_ATTENTION", {"place": "packed"}, "paged()"),
]


def settings_of(runtime: Any) -> list[object]:
    """What it was made of, each part in words where it has no equality."""
    given, named = runtime._made_of
    return [type(runtime), *map(repr, given), *map(repr, sorted(named.items()))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_every_runtime_can_be_copied(name: str, way: str) -> None:
    """An engine copies its configuration deeply, and sends it to the processes that it spawns."""
    runtime = open_backend(name)
    copied = WAYS[way](runtime)
    assert copied is not runtime
    assert copied.get_name() == name
    assert settings_of(copied) == settings_of(runtime)


@pytest.mark.parametrize(("name", "knobs", "case"), COMPUTE)
def test_one_that_computed_and_has_knobs_is_copied_without_what_it_keeps(
    name: str, knobs: dict[str, Any], case: str
) -> None:
    """Kernels, launches and the last batch stay behind; its knobs go along, and it computes."""
    runtime = open_backend(name)
    if hasattr(runtime, "with_knobs"):
        runtime = runtime.with_knobs(knobs)
    assert try_case(runtime, case_of(*split_case(case)), "cpu").verdict == "pass"
    for make in WAYS.values():
        copied = make(runtime)
        assert settings_of(copied) == settings_of(runtime)
        fresh = type(runtime)(*runtime._made_of[0], **runtime._made_of[1])
        assert vars(copied).keys() == vars(fresh).keys()
    assert try_case(copied, case_of(*split_case(case)), "cpu").verdict == "pass"


def test_a_rival_kernel_is_kept() -> None:
    """And knobs of the bundled ones are those of the copy."""
    runtime = open_backend("GDN_ATTN").with_knobs({}, "fla")
    assert copy.deepcopy(runtime)._kernel == "fla"
    tuned = open_backend("GDN_ATTN").with_knobs({"tile": 512})
    assert copy.deepcopy(tuned)._tuned == {"knobs": {"tile": 512}}


def test_a_process_that_imported_nothing_takes_it_over() -> None:
    """As spawn does: a pickle through a pipe."""
    runtime = open_backend("CPU_ATTN").with_knobs({"threads": 1})
    code = "import pickle, sys\nr = pickle.load(sys.stdin.buffer)\nprint(r.get_name(), r._knobs)"
    ran = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(runtime), cwd=ROOT, capture_output=True
    )
    assert ran.stdout.decode().strip() == "CPU_ATTN {'threads': 1}", ran.stderr.decode()
