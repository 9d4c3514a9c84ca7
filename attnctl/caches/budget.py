"""The cache of a whole model on one rank: blocks for attention, slots for states, what fits.

Groups whose backend is_ssm own slots of a fixed size, the others blocks of tokens. In a hybrid both
come from one pool of pages, so the attention block is raised until its page holds one state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from attnctl.caches.costs import Cost
from attnctl.caches.pages import HybridBlocks, KernelBlocks, unify
from attnctl.caches.states import itemsize, state_bytes
from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.layer import Options
from attnctl.registry import Registry

REACH = 2**31
"""Elements that a signed 32-bit offset reaches."""


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank keeps, and how much of it fits.

    block_size: tokens of an attention block, the largest where groups differ; raised_from: what
    the backends alone would take, where a state asks for more. page_bytes: a block in one layer,
    the smallest there is. state_page_bytes: the largest state of one layer; padding_percent: how
    much of a page it leaves empty. token_bytes, sequence_state_bytes: of all layers. memory_bytes:
    what the cache may take, memory_source: who says so. sequences: of sequence_tokens tokens each
    that fit at once; tokens: that many sequences' tokens, fractions of one included, as engines
    print it.
    """

    block_size: int | None = None
    raised_from: int | None = None
    page_bytes: int | None = None
    state_page_bytes: int | None = None
    padding_percent: float | None = None
    token_bytes: int = 0
    slots_per_sequence: int = 0
    sequence_state_bytes: int = 0
    memory_bytes: int | None = None
    memory_source: str = ""
    sequence_tokens: int | None = None
    sequence_bytes: int | None = None
    sequences: int | None = None
    tokens: int | None = None
    notes: tuple[str, ...] = ()


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One group's share. bound: tokens that a window or chunk keeps at most."""

    decision: Decision
    cost: Cost
    bound: int | None


def plan_cache(
    decisions: Sequence[Decision],
    costs: Sequence[Cost],
    options: Options,
    registry: Registry,
    *,
    units: Callable[[Decision], tuple[int, ...]],
    memory: tuple[int | None, str],
    max_position: int | None = None,
) -> CachePlan | None:
    """The plan of these decisions; None where nothing is kept, or a group's size is not known.

    costs: of the decisions, one each. units: sizes of which a pick's blocks are multiples; (): any.
    memory: bytes and who says so. max_position: the model's longest sequence, where
    --max-model-len is not given.
    """
    groups = [
        Kept(decision=decision, cost=cost, bound=decision.group.window or decision.group.chunk)
        for decision, cost in zip(decisions, costs, strict=True)
        if cost.layers
    ]
    if not groups or any(one.cost.note or one.decision.pick is None for one in groups):
        return None
    paged = [one for one in groups if one.cost.token_bytes]
    states = [one for one in groups if one.cost.states]
    start = max((one.cost.block_size or 0 for one in paged), default=0) or None
    raised = _raised(paged, states, units, start) if paged and states else None
    notes = [] if raised is not None or not (paged and states) else [_never(states)]
    block = raised.block_size if raised else start
    slots = 1 + options.speculative_tokens if states else 0
    page = raised.page_bytes if raised else None
    state = slots * sum(one.cost.layers * (page or state_bytes(one.cost.states)) for one in states)
    length = options.max_model_len or max_position
    known = not paged or (length is not None and all(_length_known(one) for one in paged))
    # a page that holds a state is one for all groups; else each has its own
    shared = raised.block_size if raised else None
    sequence = state + _kept(paged, length or 0, shared) if known else None
    return CachePlan(
        block_size=block,
        raised_from=start if raised and raised.block_size != start else None,
        page_bytes=page or _least_page(paged),
        state_page_bytes=max((state_bytes(one.cost.states) for one in states), default=None),
        padding_percent=_padding(raised),
        token_bytes=sum(one.cost.token_bytes for one in paged),
        slots_per_sequence=slots,
        sequence_state_bytes=state,
        memory_bytes=memory[0],
        memory_source=memory[1],
        sequence_tokens=length if paged else None,
        sequence_bytes=sequence,
        **_fitting(memory[0], sequence, length if paged else None),
        notes=(*notes, *_far(paged, registry, memory[0], block)),
    )


def with_blocks(costs: Sequence[Cost], plan: CachePlan | None) -> tuple[Cost, ...]:
    """The costs with the plan's block size, which may be above what each backend takes alone."""
    if plan is None or plan.raised_from is None:
        return tuple(costs)
    size = plan.block_size or 1
    return tuple(
        cost
        if cost.block_bytes is None
        else msgspec.structs.replace(
            cost, block_size=size, block_bytes=size * cost.layer_token_bytes
        )
        for cost in costs
    )


def _raised(
    paged: list[Kept],
    states: list[Kept],
    units: Callable[[Decision], tuple[int, ...]],
    start: int | None,
) -> HybridBlocks | None:
    """The block whose page holds a state: a multiple of what every layer's kernel takes."""
    taken = [units(one.decision) for one in (*paged, *states)]
    kernels = [KernelBlocks(sizes=sizes) for sizes in taken if sizes]
    least = min(one.cost.layer_token_bytes for one in paged)
    largest = max(state_bytes(one.cost.states) for one in states)
    try:
        return unify(
            kernels or [KernelBlocks(sizes=(1,))],
            least,
            largest,
            block_size=start or 1,
        )
    except InputError:
        return None


def _never(states: list[Kept]) -> str:
    names = ", ".join(dict.fromkeys(one.decision.group.kind for one in states))
    return f"no block size that the attention kernels take holds a state of {names}"


def _padding(raised: HybridBlocks | None) -> float | None:
    if raised is None or not raised.state_bytes:
        return None
    return round(100 * (raised.page_bytes - raised.state_bytes) / raised.page_bytes, 2)


def _least_page(paged: list[Kept]) -> int | None:
    """The smallest page of one layer where no state fixes it."""
    return min((one.cost.block_bytes for one in paged if one.cost.block_bytes), default=None)


def _length_known(one: Kept) -> bool:
    return not one.cost.of_encoder or one.cost.sequence_tokens is not None


def _kept(paged: list[Kept], tokens: int, block: int | None) -> int:
    """Bytes of one sequence's whole blocks; an encoder's are those of the encoder's length.

    block: of all groups; None where each has its own.
    """
    total = 0
    for one in paged:
        own = one.cost.sequence_tokens if one.cost.of_encoder else tokens
        length = min(own or 0, one.bound or own or 0)
        size = block or one.cost.block_size or 1
        total += -(-length // size) * size * one.cost.token_bytes
    return total


def _fitting(memory: int | None, sequence: int | None, length: int | None) -> dict[str, int]:
    if memory is None or not sequence:
        return {}
    found = {"sequences": memory // sequence}
    if length is not None:
        found["tokens"] = memory * length // sequence
    return found


def _far(paged: list[Kept], registry: Registry, memory: int | None, block: int | None) -> list[str]:
    """Where 32-bit offsets end, for the picks whose kernels count with them."""
    total = sum(one.cost.token_bytes for one in paged)
    found = []
    for one in paged:
        pick = one.decision.pick
        backend = registry.get(pick.name) if pick else None
        if memory is None or backend is None or backend.offset_bits != 32:
            continue
        # a cache in place has the layer's own dtype
        reach = REACH * itemsize(one.decision.dtype) // one.cost.layer_token_bytes
        if memory // total > reach:
            found.append(
                f"{backend.name} reaches {reach // (block or 1):,} blocks ({reach:,} tokens) of a "
                "layer's cache with its 32-bit offsets; beyond them it copies each batch's pages"
            )
    return list(dict.fromkeys(found))
