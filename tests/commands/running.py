"""Runs one command line in this process and keeps what it said."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from attnctl.cli import run as run_cli
from attnctl.render.output import Output

ROOT = Path(__file__).parent.parent.parent
LLAMA = str(ROOT / "examples" / "llama-3.1-8b.json")
MODELS = ROOT / "tests" / "models"


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def last_line(self) -> str:
        return self.out.rstrip("\n").rpartition("\n")[2]


def run(
    *words: str, width: int | None = None, colour: bool = False, app: Any | None = None
) -> Answer:
    """The answer of `attnctl WORDS`; width: on a terminal that wide, else into a pipe."""
    out, err = io.StringIO(), io.StringIO()
    output = Output(out, terminal=width is not None, width=width, colour=colour)
    with redirect_stdout(out), redirect_stderr(err):
        code = run_cli(words, output, app)
    return Answer(code, out.getvalue(), err.getvalue())
