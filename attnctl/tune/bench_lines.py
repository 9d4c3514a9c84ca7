"""What the tuner and the child that runs kernels say to each other, in JSON lines. No torch."""

from __future__ import annotations

import msgspec

from attnctl.tune.exchange import Candidate, Site, Times, Verdict
from attnctl.tune.settings import Setting, Work


class AskSite(msgspec.Struct, frozen=True, tag="site"):
    pass


class AskSettings(msgspec.Struct, frozen=True, tag="settings"):
    work: Work
    backend: str


class AskCheck(msgspec.Struct, frozen=True, tag="check"):
    work: Work
    candidate: Candidate


class AskTime(msgspec.Struct, frozen=True, tag="time"):
    work: Work
    candidates: tuple[Candidate, ...]
    rounds: int


Ask = AskSite | AskSettings | AskCheck | AskTime


class At(msgspec.Struct, frozen=True, tag="at"):
    """The child is about to run this candidate: who is to blame if it dies or hangs.

    "": it runs all of them in turns.
    """

    key: str


class Found(msgspec.Struct, frozen=True, tag="settings"):
    settings: tuple[Setting, ...]


class Judged(msgspec.Struct, frozen=True, tag="judged"):
    key: str
    verdict: Verdict


class Here(msgspec.Struct, frozen=True, tag="here"):
    site: Site


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request could not be served; the child lives on."""

    detail: str


Answer = At | Found | Judged | Times | Here | Failed
