"""The eligible backends in order, and why the first of them stands before the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnctl.decision import Beaten, Candidate, Evidence, Pick
from attnctl.layer import Layer
from attnctl.registry import Backend, Rank, Registry
from attnctl.requirements.rule import Subject
from attnctl.selection.memo import Memo

if TYPE_CHECKING:
    from attnctl.profile.order import Order

# past every declared place: a backend that stands in no order of this platform
UNRANKED = 10_000

DEFAULT_BLOCK = 16

Scored = tuple[Backend, Candidate, Rank | None]


def score(registry: Registry, subject: Subject, memo: Memo) -> list[Scored]:
    """Every backend with its findings: eligible ones first, then by place, then by name."""
    scored = []
    for backend in registry.backends:
        answers = memo.findings(backend, subject)
        rank = backend.rank(subject)
        candidate = Candidate(
            name=backend.name,
            ok=answers.met,
            kernel=backend.kernel_for(subject.layer),
            place=rank.place if rank else None,
            findings=answers.findings,
        )
        scored.append((backend, candidate, rank))
    scored.sort(key=_order)
    return scored


def _order(entry: Scored) -> tuple[bool, int, str]:
    return (not entry[1].ok, *place_of(entry[1]))


def place_of(candidate: Candidate) -> tuple[int, str]:
    return UNRANKED if candidate.place is None else candidate.place, candidate.name


def best_of(eligible: list[Scored], subject: Subject, order: Order | None) -> Pick:
    backend, _, rank = eligible[0]
    # a backend that was not timed and stands first owes nothing to the timings of others
    used = order if order is not None and order.fastest == backend.name else None
    beat = tuple(_beaten(entry, rank, used) for entry in eligible[1:])
    if not beat:
        evidence: Evidence = "only"
        why = "the only backend that meets every requirement"
    else:
        # what was measured outweighs the default, whoever stands next
        first = next((one for one in beat if one.evidence == "measured"), beat[0])
        evidence, why = first.evidence, f"before {first.name}: {first.because}"
        if evidence == "measured":
            why = f"{backend.name} over {first.name}: {first.because}"
    return as_pick(backend, evidence, why, beat, subject)


def _beaten(entry: Scored, winner: Rank | None, order: Order | None) -> Beaten:
    _, candidate, rank = entry
    if order is not None and candidate.name in order.because:
        return Beaten(candidate.name, order.because[candidate.name], "measured")
    if order is not None and candidate.name in order.passed:
        because = "not timed for this shape; a timed one stood before it"
        return Beaten(candidate.name, because, "default")
    if winner is None:
        return Beaten(candidate.name, "by name: neither stands in this platform's order", "default")
    if rank is None:
        return Beaten(candidate.name, "it stands in no order of this platform", "default")
    evidence: Evidence = "rule" if winner.when is not None else "default"
    return Beaten(candidate.name, winner.why, evidence)


def as_pick(
    backend: Backend, evidence: Evidence, why: str, beat: tuple[Beaten, ...], subject: Subject
) -> Pick:
    planned = backend.kernel_for(subject.layer) == "planned"
    return Pick(
        name=backend.name,
        evidence=evidence,
        why=why,
        beat=beat,
        is_ssm=backend.is_ssm,
        runnable=not planned,
        block_size=block_of(backend.here(subject), subject.layer, subject.platform),
        note=_planned_note(backend, subject.layer) if planned else "",
    )


def _planned_note(backend: Backend, layer: Layer) -> str:
    which = f" for a cache in {layer.kv_cache_dtype}" if backend.kernel != "planned" else ""
    return f"not runnable yet: its kernel{which} is planned"


def block_of(backend: Backend, layer: Layer, platform: str = "") -> int | None:
    """Tokens per page of the cache that the layer keeps; None where it keeps none."""
    return page_of(backend, layer, platform) if layer.group.needs_kv_cache else None


def page_of(backend: Backend, layer: Layer, platform: str = "") -> int | None:
    """Tokens per page that the backend is called with: the user's size, its own, or the field's 16.

    An encoder's layers, which keep no cache, are called with pages all the same; None for states.
    Where 16 is not one of the backend's sizes, its smallest (vLLM 0.33's rule).
    """
    if backend.is_ssm:
        return None
    return own_page(backend, platform) if layer.block_size is None else layer.block_size


def own_page(backend: Backend, platform: str) -> int:
    """Tokens per page that a backend is called with where nobody names another size."""
    if backend.prefers_block is not None:
        return backend.prefers_block
    if backend.takes_block(DEFAULT_BLOCK, platform):
        return DEFAULT_BLOCK
    return min(backend.block_units(platform))
