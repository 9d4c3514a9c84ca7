"""A wrong type at every key of a document, one after the other: python -m tests.faults.every_key.

Each answer is judged as the fuzzed ones are; the first that breaks a rule ends it with exit code 1.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.commands.running import ROOT, run
from tests.faults.kinds import KINDS
from tests.faults.row import Ended, Place, Row
from tests.fuzz.damage import places_in
from tests.fuzz.lines import Line
from tests.fuzz.run import broken_rules, kept_commands

WRONG: tuple[Any, ...] = (None, "x", -1.5, [], {"x": 1})
MOST = 600
"""Answers of one document: of a longer one every other place is asked about, or every third."""


def main(name: str) -> int:
    (kind,) = (one for one in KINDS if one.name == name)
    document, app = json.loads(kind.good), kept_commands()
    places = places_in(document)
    step = -(-len(places) * len(WRONG) // MOST)
    codes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        words = tuple(kind.line.format(here=folder, root=ROOT).split())
        for where, key in places[::step]:
            good = where[key]
            for wrong in WRONG:
                where[key] = wrong
                Path(folder, "x.json").write_text(json.dumps(document))
                answer = run(*words, app=app)
                codes.append(answer.code)
                for broken in broken_rules(Line(words), answer):
                    print(f"{key} = {wrong!r}: {broken}")
                    return 1
            where[key] = good
    print(f"every key of {kind.article}: {len(codes)} answers, {codes.count(2)} refusals, 0 faults")
    return 0


def asked(place: Place, line: str) -> Ended:
    """This file as a program; line: a kind of document."""
    return place.ended(place.start(line, "tests.faults.every_key"))


EVERY_KEY = tuple(
    Row(f"a wrong type at every key of {kind.article}", f"'{kind.name}'", "0 faults", 0, run=asked)
    for kind in KINDS
)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
