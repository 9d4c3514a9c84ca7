"""A finding: what a rule wanted, what it found, where that fact came from, and what would help.

Selection, probing and profile matching all answer in findings, so that one renderer and one JSON
form serve them all.
"""

from enum import Enum

import msgspec


class Verdict(str, Enum):
    """What a rule says. Unknown ("could not ask") is not unmet ("asked, and it is not so")."""

    MET = "met"
    UNMET = "unmet"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True, gc=False):
    """The answer of one rule about one machine and one layer.

    code: stable slug of the rule (`attnctl explain CODE` tells more about it).
    wanted / found: the two sides in plain words, values included.
    source: where the found value came from: a key path of config.json, a probe source, an option.
    fix: the one thing that a user can change, or "" where nothing would help.
    """

    code: str
    verdict: Verdict
    wanted: str
    found: str
    source: str = ""
    fix: str = ""

    @property
    def met(self) -> bool:
        return self.verdict is Verdict.MET


def met(code: str, wanted: str, found: str, source: str = "") -> Finding:
    return Finding(code, Verdict.MET, wanted, found, source)


def unmet(code: str, wanted: str, found: str, source: str = "", fix: str = "") -> Finding:
    return Finding(code, Verdict.UNMET, wanted, found, source, fix)


def unknown(code: str, wanted: str, found: str, source: str = "", fix: str = "") -> Finding:
    return Finding(code, Verdict.UNKNOWN, wanted, found, source, fix)
