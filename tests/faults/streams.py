"""Faults of streams, terminals and locales."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.faults.kinds import CONFIG
from tests.faults.row import Ended, Place, Row, environ, file, shell

SELECT = "select --model {root}/examples/llama-3.1-8b.json --machine h200 --profile none"
PIPED = "select --model - --machine h200 --profile none"
BAD = f"{SELECT} --tp 0"
PICKED = "h200: FLASH_ATTN"
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NO_LOCALE = {"LC_ALL": None, "LANG": None, "LC_CTYPE": None}
LATIN = environ({"PYTHONIOENCODING": "latin-1"})
CLOSED = "standard output is closed, so that no answer can be written"
FULL = "standard output cannot be written: No space left on device"


def on_a_terminal(place: Place, line: str) -> Ended:
    """All three streams are one pseudo-terminal, whose size nobody has set."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        place.command(line),
        cwd=place.folder,
        env=place.environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    said = b""
    try:
        while chunk := os.read(leader, 65536):
            said += chunk
    except OSError:  # Linux's word for a terminal that nobody holds any more
        pass
    os.close(leader)
    return Ended(process.wait(), said.decode("utf-8", "replace"), "")


def reader_who_leaves(place: Place, line: str) -> Ended:
    """Standard output is closed at the other end before anything was written to it."""
    process = place.start(line)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.close()
    said = process.stderr.read()
    process.stderr.close()
    return Ended(process.wait(), "", said.decode())


def streams(fault: str, line: str, redirected: str, says: str, code: int = 2) -> Row:
    """redirected: in the shell's words."""
    return Row(fault, line, says, code, (shell(redirected=redirected),))


def around(fault: str, variables: dict[str, str | None]) -> Row:
    """An answer as ever, with these variables."""
    return Row(fault, SELECT, PICKED, 0, (environ(variables),))


def terminal(fault: str, variables: dict[str, str | None]) -> Row:
    """An answer as ever, on a terminal without colours."""
    given = environ({"TERM": "dumb", **variables})
    return Row(fault, SELECT, "FLASH_ATTN", 0, (given,), run=on_a_terminal)


STREAMS: tuple[Row, ...] = (
    streams("standard output closed", f"{SELECT} --json", ">&-", CLOSED),
    streams("standard output closed, for help", "--help", ">&-", CLOSED),
    streams("standard output full", f"{SELECT} --json", ">/dev/full", FULL),
    streams("standard output full, for help", "--help", ">/dev/full", FULL),
    streams("standard output full, for a command's help", "select --help", ">/dev/full", FULL),
    streams("standard output full, for the version", "--version", ">/dev/full", FULL),
    streams("standard input closed", PIPED, "<&-", "standard input is closed; pipe a config.json"),
    streams("standard input empty", PIPED, "</dev/null", "standard input is not JSON: "),
    streams("standard input endless", PIPED, "</dev/zero", "standard input is larger than 16 MiB"),
    streams("standard error closed beside a fault", BAD, "2>&-", ""),
    streams("standard error full beside a fault", BAD, "2>/dev/full", ""),
    streams("standard error closed beside an answer", SELECT, "2>&-", PICKED, 0),
    streams("all streams closed", f"{SELECT} --json", "<&- >&- 2>&-", ""),
    Row("a reader who leaves", f"{SELECT} --json", "", 0, run=reader_who_leaves),
    around("no terminal", {"TERM": None}),
    terminal("a terminal of no size", {}),
    terminal("a terminal of no columns", {"COLUMNS": "-7"}),
    terminal("a terminal of a hundred thousand columns", {"COLUMNS": "99999"}),
    terminal("a terminal of columns that are no number", {"COLUMNS": "many"}),
    around("the locale C", {"LC_ALL": "C"}),
    around("the locale C without UTF-8", {**PLAIN_C}),
    around("no locale", {**NO_LOCALE}),
    around("a locale that is not installed", {"LC_ALL": "xx_XX.ISO-8859-15"}),
    around("streams of an encoding that nobody knows", {"PYTHONIOENCODING": ":replace"}),
    Row(
        "the locale C, and a path that it cannot show",
        "select --model {here}/m\u00e4.json --machine h200 --profile none",
        PICKED,
        0,
        (environ({**PLAIN_C}), file("m\u00e4.json", CONFIG)),
    ),
    Row(
        "Latin-1 on the streams, and a type of model that it lacks",
        "select --model {here}/x.json --machine h200 --profile none",
        PICKED,
        0,
        (LATIN, file("x.json", CONFIG.replace('"llama"', '"l\u6a21"'))),
    ),
    Row(
        "Latin-1 on the streams, and a fault in what it lacks",
        "select --model {here}/\u6a21.json --machine h200",
        "does not exist; name a config.json",
        given=(LATIN,),
    ),
)
