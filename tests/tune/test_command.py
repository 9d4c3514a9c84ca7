"""The command: what it refuses, and what it shows."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jsonschema
import msgspec
import pytest

from attnctl.render.plain import plain
from attnctl.render.tune import Progress, tune_view
from attnctl.tune.exchange import Candidate, Verdict
from attnctl.tune.session import tune
from attnctl.tune.settings import Work
from tests.commands.running import LLAMA, ROOT, run
from tests.tune.fake import GRID, FakeBench, Silent, key, request


def test_a_demand_that_cannot_be_met_here_is_a_no() -> None:
    """Exit code 1, as select gives: FLASHMLA computes no plain attention."""
    answer = run("tune", "--model", LLAMA, "--backend", "FLASHMLA", "-o", "p.json")
    assert answer.code == 1
    assert "none of --backend is eligible, attnctl select says why" in answer.err


def test_the_table_says_who_won_by_how_much_and_what_failed(tmp_path: Path) -> None:
    """One row a point, the failures, and where the profile is."""
    output = tmp_path / "p.json"
    faults = {
        key(GRID[0]): Verdict(fault="wrong", detail="error 1 over budget 0.1"),
        key(GRID[1]): Verdict(fault="crashed", detail="signal SIGSEGV"),
    }
    text = plain(tune_view(tune(request(output), Silent(), FakeBench(faults=faults))))
    assert "tile=64 warps=4" in text
    assert "0.50x TRITON_ATTN" in text
    assert "TRITON_ATTN: wrong 3 times: error 1 over budget 0.1" in text
    assert "TRITON_ATTN: crashed 3 times: signal SIGSEGV" in text
    assert text.splitlines()[-1].endswith(f"the profile is {output}")
    assert "3 of 3 points timed" in text


def test_the_report_and_the_profile_fit_their_schemas(tmp_path: Path) -> None:
    """What --json prints and what is written are valid against the published schemas."""
    output = tmp_path / "p.json"
    report = tune(request(output), Silent(), FakeBench())
    for name, document in (("tune", msgspec.json.encode(report)), ("profile", output.read_bytes())):
        schema = json.loads((ROOT / "docs" / "schema" / f"{name}.schema.json").read_text())
        jsonschema.validate(json.loads(document), schema)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_how_long_it_takes_and_the_best_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bar, the points done, an estimate, and the last winner with its setting; then nothing."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = Progress(stream)
    tune(request(tmp_path / "p.json"), progress, FakeBench())
    progress.close()
    lines = stream.getvalue().split("\r\x1b[K")
    assert lines[1].startswith("[........................] 0/3 points")
    assert lines[2].startswith("[########................] 1/3, about ")
    assert "TRITON_ATTN 100 us" in lines[2]
    assert lines[-2].startswith("[########################] 3/3")
    assert lines[-1] == ""


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_pipe_and_a_dumb_terminal_see_no_bar(
    stream: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error stays empty, of a job in the background and where no line is taken back."""
    monkeypatch.setenv("TERM", "dumb")
    tune(request(tmp_path / "p.json"), Progress(stream), FakeBench())
    assert stream.getvalue() == ""


def test_the_command_imports_no_torch() -> None:
    """The parent process never does, whatever it is asked; --help costs little."""
    script = (
        "import sys\n"
        "for name in ('torch', 'triton', 'numpy'): sys.modules[name] = None\n"
        "from attnctl.cli import run\n"
        "import attnctl.tune.session, attnctl.render.tune\n"
        "sys.exit(run(('tune', '--help')))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "--resume" in ended.stdout


class Slow(FakeBench):
    """One whose judging takes half a second at each point."""

    def check(
        self,
        work: Work,
        candidates: Sequence[Candidate],
        until: float | None = None,
        always: int = 0,
    ) -> Iterator[tuple[Candidate, Verdict]]:
        time.sleep(0.5)
        return super().check(work, candidates, until, always)


def test_a_budget_that_was_overrun_is_said(tmp_path: Path) -> None:
    """What cannot be cut short took longer than a budget of nothing; without one all is well."""
    report = tune(request(tmp_path / "p.json", budget_s=0.01), Silent(), Slow())
    (note,) = [note for note in report.notes if "--budget" in note]
    assert note.startswith("it took 2 s instead of the 0.01 s of --budget")
    whole = tune(request(tmp_path / "q.json"), Silent(), FakeBench())
    assert not [note for note in whole.notes if "--budget" in note]
