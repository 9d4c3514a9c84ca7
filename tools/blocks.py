"""Fenced blocks of the documentation: what it tells a reader to run, and what it says comes out.

A fence opens with three backticks and words: `sh` is run by the tests, `sh install-...` by .ci/run
alone (it makes an environment), and `text COMMAND` is what that command prints.

    python tools/blocks.py README.md install-tool     prints the blocks of that mark, as one script
    python tools/blocks.py --write FILE...            writes the outputs anew
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WIDTH = 100
FENCE = re.compile(r"^```(?P<words>[^\n`]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    file: str
    line: int
    language: str
    mark: str
    body: str


def blocks(path: Path) -> list[Block]:
    """Every fenced block of a file that names its language."""
    text = path.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, _, mark = match["words"].strip().partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(path.name, line, language, mark.strip(), match["body"]))
    return found


def output_of(command: str) -> str:
    """What an attnctl command shows on a terminal of WIDTH columns without colours."""
    from attnctl.cli import run
    from attnctl.render.output import Output

    program, *words = shlex.split(command)
    if program != "attnctl":
        raise ValueError(f"{command}: only attnctl commands are run")
    stream = io.StringIO()
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        run(words, Output(stream, terminal=True, width=WIDTH, colour=False))
    finally:
        os.chdir(before)
    return stream.getvalue()


def renewed(path: Path) -> str:
    """The file's text with the output of every `text COMMAND` block as it is now."""

    def renew(match: re.Match[str]) -> str:
        language, _, command = match["words"].strip().partition(" ")
        if language != "text" or not command.startswith("attnctl"):
            return match[0]
        return f"```{match['words']}\n{output_of(command)}```"

    return FENCE.sub(renew, path.read_text("utf-8"))


def main(arguments: list[str]) -> None:
    if arguments[0] == "--write":
        for name in arguments[1:]:
            Path(name).write_text(renewed(Path(name)), "utf-8")
        return
    name, mark = arguments
    print("".join(block.body for block in blocks(Path(name)) if block.mark == mark), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
