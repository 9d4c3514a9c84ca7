"""The table of a running smoke: drawn on a terminal, and nothing of it in a pipe."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from attnctl.render.smoke_live import LiveTable
from attnctl.smoke.planning import Plan
from attnctl.smoke.trials import Trial

ROOT = Path(__file__).parent.parent.parent
PLANS = (
    Plan("CPU_ATTN", "cpu", "device", ("paged()", "paged(window=7)"), ()),
    Plan("TRITON_ATTN", "interpret", "interpret", ("paged()",), ()),
    Plan("FLASH_ATTN", "interpret", "interpret", (), (Trial("paged()", "unsupported"),)),
)
SMOKE = ("-m", "attnctl", "smoke", "--backend", "CPU_ATTN", "--case", "paged(queries=1,contexts=1)")


def test_rows_count_what_ran_and_what_is_bad() -> None:
    """A backend that runs nothing has no row; refused cases are not counted."""
    target = io.StringIO()
    console = Console(file=target, force_terminal=True, width=80, color_system=None)
    with LiveTable(PLANS, console) as live:
        live.note(0, Trial("paged()", "pass"))
        live.note(0, Trial("paged(window=7)", "wrong"))
        live.note(2, Trial("paged()", "unsupported"))
    lines = [line.split() for line in target.getvalue().splitlines()]
    assert ["CPU_ATTN", "cpu", "2/2", "1"] in lines
    assert ["TRITON_ATTN", "interpret", "0/1"] in lines
    assert any("2/3" in line for line in lines)
    assert not any("FLASH_ATTN" in line for line in lines)


def test_many_rows_keep_those_that_matter() -> None:
    """Those with a bad case, then those that are not done."""
    plans = [Plan(f"B{n}", "sm_90", "compile", ("paged()",), ()) for n in range(30)]
    target = io.StringIO()
    console = Console(file=target, force_terminal=True, width=80, height=40, color_system=None)
    with LiveTable(plans, console) as live:
        for place in range(29):
            live.note(place, Trial("paged()", "wrong" if place == 3 else "pass"))
    last = target.getvalue().split("backend")[-1]
    assert "B3 " in last
    assert "B29 " in last
    assert len([line for line in last.splitlines() if line.startswith("B")]) == 12


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}


def test_nothing_of_it_is_piped() -> None:
    """Neither standard output nor standard error holds an escape or a bar."""
    done = subprocess.run(
        [sys.executable, *SMOKE], cwd=ROOT, env=environment(), capture_output=True, check=True
    )
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1] == b"1 of 1 cases passed on 1 backend"


def test_on_a_terminal_it_is_drawn_on_standard_error_alone() -> None:
    """And gone when the answer comes."""
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *SMOKE],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=terminal,
    ) as running:
        os.close(terminal)
        drawn = b""
        try:
            while chunk := os.read(screen, 65536):
                drawn += chunk
        except OSError:  # the other end is closed
            pass
        out, _ = running.communicate()
    os.close(screen)
    assert running.returncode == 0
    assert b"CPU_ATTN" in drawn
    assert b"1/1" in drawn
    assert b"\x1b" not in out
