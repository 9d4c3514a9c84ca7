"""A tune that was killed goes on where it was, and only there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attnctl.exits import InputError
from attnctl.profile.document import read_profile
from attnctl.tune.journal import journal_path
from attnctl.tune.session import tune
from tests.commands.running import ROOT
from tests.tune.fake import POINTS, FakeBench, Silent, machine, request
from tests.tune.interrupted import begun, refusal


def slow(output: Path, log: Path, resume: bool) -> subprocess.Popen[str]:
    words = [str(output), str(log), "resume" if resume else "new"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.tune.slow_tune", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(output: Path, log: Path, resume: bool) -> tuple[int, str]:
    process = slow(output, log, resume)
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


@pytest.mark.parametrize("seed", range(3))
def test_a_tune_killed_at_any_moment_loses_no_finished_point(tmp_path: Path, seed: int) -> None:
    """SIGKILL at random moments: no finished point is timed again, and the profile is the same."""
    chance = random.Random(seed)
    whole, log = tmp_path / "whole.json", tmp_path / "whole.log"
    assert ended(whole, log, resume=False)[0] == 0
    torn, log = tmp_path / "torn.json", tmp_path / "torn.log"
    finished: set[str] = set()
    for _ in range(40):
        there = any(tmp_path.glob("torn.json.*.journal"))
        before = len(log.read_text().splitlines()) if log.exists() else 0
        process = slow(torn, log, resume=there)
        assert process.stdout is not None
        wanted = chance.randrange(1, 5)
        said = [line for _, line in zip(range(wanted), process.stdout, strict=False)]
        time.sleep(chance.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        again = log.read_text().splitlines()[before:] if log.exists() else []
        assert not finished & set(again)
        finished |= {line.removeprefix("done ").strip() for line in said if line.startswith("done")}
        if torn.exists():
            break
    assert len(finished) > 5
    assert torn.read_bytes() == whole.read_bytes()
    assert not any(tmp_path.glob("*.journal"))


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    """Half of the last line, at any byte of it: what stands before it counts."""
    output = tmp_path / "p.json"
    journal = begun(output)
    lines = journal.read_bytes().splitlines(keepends=True)
    whole, last = b"".join(lines[:-1]), lines[-1]
    for cut in (1, len(last) // 2, len(last) - 1):
        journal.write_bytes(whole + last[:cut])
        output.unlink(missing_ok=True)
        watcher = Silent()
        tune(request(output, resume=True), watcher, FakeBench())
        assert len(watcher.steps) == len(POINTS)


def test_finished_points_and_verdicts_are_not_asked_for_again(tmp_path: Path) -> None:
    """The second run judges nothing that the first one judged in the same phase."""
    output = tmp_path / "p.json"
    begun(output)
    bench, watcher = FakeBench(), Silent()
    tune(request(output, resume=True), watcher, bench)
    assert [step.done for step in watcher.steps] == [2, 3]
    assert len(bench.judged) == 22  # prefill alone: 21 settings of one backend, one of the other


def test_another_machine_is_refused(tmp_path: Path) -> None:
    """A journal of an H200 does not go on on an H100."""
    output = tmp_path / "p.json"
    begun(output)
    here = machine()
    (gpu,) = here.nvidia.gpus
    other = msgspec.structs.replace(gpu, pci_id="10de:2330")
    nvidia = msgspec.structs.replace(here.nvidia, gpus=(other,))
    said = refusal(output, machine=msgspec.structs.replace(here, nvidia=nvidia))
    assert "was begun on nvidia sm_90 10de:2335" in said
    assert said.endswith("resume it there")


def test_another_model_or_workload_has_no_journal(tmp_path: Path) -> None:
    """Its journal would have another name, and the one that is there is named."""
    output = tmp_path / "p.json"
    begun(output)
    assert "no tune of this model and workload was interrupted" in refusal(
        output, backends=("FLEX_ATTENTION",)
    )
    assert "no tune of this model and workload was interrupted" in refusal(output, loads=POINTS[:2])


def test_another_torch_is_refused(tmp_path: Path) -> None:
    """Times of two versions do not mix."""
    output = tmp_path / "p.json"
    begun(output)

    class Newer(FakeBench):
        def site(self) -> Any:
            return msgspec.structs.replace(super().site(), torch="2.13.0")

    with pytest.raises(InputError, match=r"with torch 2\.11\.0, and here it is 2\.13\.0"):
        tune(request(output, resume=True), Silent(), Newer())


def test_a_new_tune_does_not_overwrite_a_journal(tmp_path: Path) -> None:
    """What was measured is never thrown away without a word."""
    output = tmp_path / "p.json"
    begun(output)
    with pytest.raises(InputError, match="go on with --resume, or delete it"):
        tune(request(output), Silent(), FakeBench())


def test_a_tune_that_was_killed_before_its_first_line_begins_anew(tmp_path: Path) -> None:
    """--resume without a journal, as after a kill in the first second, does the whole and says so.

    One that goes on from a journal says nothing of the kind.
    """
    output = tmp_path / "p.json"
    report = tune(request(output, resume=True), Silent(), FakeBench())
    assert [note for note in report.notes if "it began anew" in note]
    whole = output.read_bytes()
    output.unlink()
    begun(output)
    report = tune(request(output, resume=True), Silent(), FakeBench())
    assert not [note for note in report.notes if "anew" in note]
    assert output.read_bytes() == whole


@pytest.mark.parametrize("resume", [True, False])
def test_two_runs_of_one_tune_do_not_share_a_journal(tmp_path: Path, resume: bool) -> None:
    """The second is told that the first is at work, and never to delete what that one writes."""
    output = tmp_path / "p.json"

    class Twice(Silent):
        def step(self, step: Any) -> None:
            with pytest.raises(InputError, match="another tune of the same is at work"):
                tune(request(output, resume=resume), Silent(), FakeBench())

    tune(request(output), Twice(), FakeBench())
    assert read_profile(output).entries


def test_journals_of_different_tunes_have_different_names() -> None:
    """Two tunes may write one profile at the same time."""
    assert journal_path("p.json", "aaaaaaaaaa") != journal_path("p.json", "bbbbbbbbbb")


def test_a_profile_of_ones_own_that_does_not_read_is_refused_before_the_run(tmp_path: Path) -> None:
    """It is named with what to do, stays as it was, and no journal is begun."""
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    asked = msgspec.structs.replace(request(tmp_path / "p.json"), output=None, environ=environ)
    own = Path(tune(asked, Silent(), FakeBench()).output)
    own.write_bytes(b"{")
    with pytest.raises(InputError, match="move it away, or name another file with --output"):
        tune(asked, Silent(), FakeBench())
    assert own.read_bytes() == b"{"
    assert not list(own.parent.glob("*.journal"))
