"""What the FP8 rule says of devices that nobody here has, checked by compiling for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("fp8_compile.py")

TAKEN = [
    "cuda:80:32:fp8e5",
    "cuda:86:32:fp8e5",
    "cuda:89:32:fp8e4nv",
    "cuda:90:32:fp8e4nv",
    "hip:gfx90a:64:fp8e4nv",
    "hip:gfx942:64:fp8e4nv",
    "hip:gfx1100:32:fp8e4nv",
    "hip:gfx1201:32:fp8e5",
]
REFUSED = ["cuda:80:32:fp8e4nv", "cuda:86:32:fp8e4nv"]


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """Target and format -> "ok" or the compiler's refusal; one child, since a pass may abort."""
    # the interpreter, where another test asked for it, compiles nothing
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *TAKEN, *REFUSED],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env=environment,
    )
    lines = done.stdout.splitlines()
    return dict(zip([*TAKEN, *REFUSED], (line.split(" ", 3)[3] for line in lines), strict=True))


@pytest.mark.parametrize("target", TAKEN)
def test_formats_that_the_rule_takes_compile(target: str, answers: dict[str, str]) -> None:
    """e5m2 from 8.0, e4m3 from 8.9 and on AMD."""
    assert answers[target] == "ok"


@pytest.mark.parametrize("target", REFUSED)
def test_formats_that_the_rule_refuses_do_not(target: str, answers: dict[str, str]) -> None:
    """Triton names the format and the architecture."""
    assert "fp8e4nv not supported in this architecture" in answers[target]
