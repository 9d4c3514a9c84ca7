"""The kinds of documents that are read, and what none of them may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from attnctl.profile.canonical import encode
from attnctl.smoke.trials import BackendTrials, SmokeReport, Trial
from tests.commands.running import LLAMA, ROOT
from tests.faults.row import Given, Row, file, folder, sparse
from tests.profile.factory import GRID, profile

CONFIG = (ROOT / LLAMA).read_text()
MACHINE = (ROOT / "profiles" / "machines" / "h200.json").read_text()
TAPE = (ROOT / "tests" / "machines" / "nvidia-no-driver.tape.json").read_text()
PROFILE = encode(profile(grid=GRID[:2])).decode()
WORKLOAD = '[{"phase": "decode", "batch": 1, "context": 64}]'
REPORT = msgspec.json.encode(
    SmokeReport(
        backends=(
            BackendTrials("TRITON_ATTN", "sm_90", "compile", (Trial("paged()", "pass", 1.5),)),
        ),
        exit_code=0,
    )
).decode()

SELECT = "select --model {root}/examples/llama-3.1-8b.json"
WITH_CONFIG = "select --model {here}/x.json --machine h200"
TUNE = "tune --model {root}/examples/llama-3.1-8b.json --device 99 -o {here}/new.json"


class Kind(NamedTuple):
    """A document: its name, a good one, the command that reads {here}/x.json, and its refusal.

    refusal: how a file that is none of it is refused; depth: how one of too many brackets is.
    """

    name: str
    good: str
    line: str
    refusal: str
    depth: str
    opening: str = '{"x":'

    @property
    def article(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


KINDS = (
    Kind("config", CONFIG, WITH_CONFIG, "is not JSON: ", "is nested too deeply to be a config"),
    Kind("machine", MACHINE, f"{SELECT} --machine {{here}}/x.json", ": not JSON (", "recursion"),
    Kind("tape", TAPE, "probe --replay {here}/x.json", ": not a tape: ", "recursion"),
    Kind(
        "profile",
        PROFILE,
        f"{SELECT} --machine h100 --profile {{here}}/x.json",
        ": not a profile: ",
        "recursion",
    ),
    Kind(
        "workload",
        WORKLOAD,
        f"{TUNE} --workload {{here}}/x.json",
        ": not a workload: ",
        ": not a workload: ",
        "",
    ),
    Kind(
        "earlier report",
        REPORT,
        "smoke --backend TRITON_ATTN --compile-for sm_90 --list --baseline {here}/x.json",
        " is no report of smoke (",
        "recursion",
    ),
)


def of_every_kind() -> Iterator[Row]:
    """What no document may be, asked of each kind."""
    for kind in KINDS:
        refused: tuple[tuple[str, str, Given], ...] = (
            ("of 1 GB", "is larger than 16 MiB; that is no ", sparse("x.json")),
            ("that is empty", kind.refusal, file("x.json", "")),
            ("that is a program", kind.refusal, file("x.json", b"\x7fELF\2\1\1\0" * 99)),
            ("cut short", kind.refusal, file("x.json", (kind.good[:-3] + "{").rstrip("}]\n "))),
            ("of 100,000 brackets", kind.depth, file("x.json", kind.opening + "[" * 100_000)),
            ("that is a text", "x.json", file("x.json", '"config"')),
            ("that is a folder", "x.json", folder("x.json")),
            (
                "in UTF-16",
                ": this is UTF-16 text, and JSON is UTF-8: save it as UTF-8",
                file("x.json", kind.good.encode("utf-16")),
            ),
        )
        for fault, says, what in refused:
            yield Row(f"{kind.article} {fault}", kind.line, says, given=(what,))
        endless = kind.line.replace("{here}/x.json", "/dev/zero")
        yield Row(f"{kind.article} without an end", endless, "/dev/zero is larger than 16 MiB")
        yield Row(f"{kind.article} that is not there", kind.line, "x.json")
