"""What is kept in cache, in words: each group's share, then the plan of them all."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.caches.budget import CachePlan
from attnctl.caches.costs import Cost
from attnctl.render.amounts import bytes_text, count_text


def cost_text(cost: Cost) -> str:
    """One line for a group."""
    if cost.note:
        return cost.note
    parts = []
    layers = count_text(cost.layers, "layer")
    if cost.token_bytes:
        token = "token of the encoder" if cost.of_encoder else "token"
        parts.append(f"{bytes_text(cost.token_bytes)} per {token} over {layers}")
    if cost.state_bytes:
        parts.append(f"{bytes_text(cost.state_bytes)} per sequence over {layers}")
    if cost.block_bytes:
        parts.append(f"pages of {cost.block_size} tokens, {bytes_text(cost.block_bytes)} each")
    if cost.sequence_bytes and cost.token_bytes:
        end = " of the encoder" if cost.of_encoder else ""
        length = f"a sequence of {cost.sequence_tokens:,} tokens{end}"
        parts.append(f"{bytes_text(cost.sequence_bytes)} for {length}")
    elif cost.of_encoder:
        parts.append("for a sequence: not known, for the encoder's length is not")
    return "; ".join(parts) or "nothing is kept"


def plan_lines(plan: CachePlan) -> Iterable[str]:
    """The plan of a whole model, a sentence a line."""
    if plan.padding_percent is not None:
        raised = "" if plan.raised_from is None else f", raised from {plan.raised_from}"
        yield (
            f"one pool of pages: blocks of {plan.block_size} tokens{raised}; a page of "
            f"{bytes_text(plan.page_bytes)} holds a layer's state of "
            f"{bytes_text(plan.state_page_bytes)}, {plan.padding_percent:.1f}% of it empty"
        )
    if plan.slots_per_sequence > 1:
        yield f"{plan.slots_per_sequence} slots a sequence, one for each draft and one before them"
    yield from _fitting(plan)
    yield from plan.notes


def _fitting(plan: CachePlan) -> Iterable[str]:
    if plan.sequence_bytes is None:
        return
    length = "any length" if plan.sequence_tokens is None else f"{plan.sequence_tokens:,} tokens"
    takes = f"a sequence of {length} takes {bytes_text(plan.sequence_bytes)}"
    if plan.sequences is None:
        yield f"{takes}; how many fit is not known: --cache-memory says what there is"
        return
    tokens = "" if plan.tokens is None else f" ({plan.tokens:,} tokens)"
    room = f"{bytes_text(plan.memory_bytes)} ({plan.memory_source})"
    yield f"{takes}: {plan.sequences:,}{tokens} fit in {room}"
