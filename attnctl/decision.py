"""The value that a selection gives: the choice, why, and every candidate with every finding."""

from __future__ import annotations

from typing import Literal

import msgspec

from attnctl.findings import Finding
from attnctl.model.spec import LayerGroup

Evidence = Literal["measured", "rule", "default", "requested", "only"]
"""What a preference rests on: a profile's timings, a rule of the field that looks at machine or
layer, the platform's default order, the user's demand, or that nothing else was eligible."""


NOT_TIMED = "the profile has no timings for layers of this shape"
"""The note of a decision that a usable profile says nothing about."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One backend's answer. ok: every finding is met. reasons: the findings that are not."""

    name: str
    ok: bool
    kernel: str
    place: int | None
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.met)


class Beaten(msgspec.Struct, frozen=True):
    """A runner-up, and why the winner stands before it."""

    name: str
    because: str
    evidence: Evidence


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """The backend chosen.

    runnable: its kernel for this layer is written. note: what the reader must know. block_size:
    tokens in a page of its cache; None for state backends and cacheless layers.
    """

    name: str
    evidence: Evidence
    why: str
    beat: tuple[Beaten, ...] = ()
    is_ssm: bool = False
    runnable: bool = True
    block_size: int | None = None
    note: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one group of layers.

    pick: None where nothing is eligible, or where the demanded backend is not (then `would_pick`
    names what the order would have given). candidates: every backend of the registry, eligible
    ones first in the order they are tried.
    """

    group: LayerGroup
    op: str | None
    features: tuple[str, ...]
    dtype: str
    kv_cache_dtype: str
    pick: Pick | None
    requested: str | None = None
    would_pick: Pick | None = None
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()

    @property
    def needs_backend(self) -> bool:
        """False for layers that hold no attention and no state."""
        return self.group.kind != "none"

    @property
    def answered(self) -> bool:
        return self.pick is not None or not self.needs_backend
