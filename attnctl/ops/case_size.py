"""How much memory a case of attention takes at least, told from its text before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.ops.case import Case

INPUT_BYTES, EXACT_BYTES = 2, 8
"""Of a number of the inputs, in the narrowest dtype, and of the float64 that they are judged in."""


def least_bytes(case: Case) -> int:
    """Bytes that its trial holds at once: inputs, cache, and the longest sequence in float64.

    A lower bound, 0 for operations whose cases have no contexts.
    """
    if "contexts" not in case.params:
        return 0
    queries, contexts = _lengths(case, "queries"), _lengths(case, "contexts")
    page, padding = case.count("page"), case.count("padding")
    row, query_row, heads = _widths(case)
    pages = sum(-(-context // page) for context in contexts)
    rows = sum(contexts) + padding
    inputs = rows * row + (sum(queries) + padding) * query_row
    # int8 and FP8 caches have a byte a number
    held = INPUT_BYTES * inputs + pages * page * row
    longest = max(contexts, default=0)
    scores = max((q * c for q, c in zip(queries, contexts, strict=True)), default=0) * heads
    return held + EXACT_BYTES * (longest * row + scores)


def memory_bytes(machine: Machine) -> int | None:
    """What a process may use of the host's memory, where every case is made; None: not known."""
    limits = (machine.cpu.memory_total_bytes, machine.cpu.memory_limit_bytes)
    return min((one for one in limits if one is not None), default=None)


def refuse_oversized(cases: Iterable[Case], memory_bytes: int | None) -> None:
    """InputError for the first case that cannot fit into the machine's memory, None: not known."""
    if memory_bytes is None:
        return
    for case in cases:
        needed = least_bytes(case)
        if needed > memory_bytes:
            raise InputError(
                f"{case}: takes {_gib(needed)} GiB or more to make and to judge, and this machine "
                f"has {_gib(memory_bytes)}; give it fewer or shorter sequences, or fewer heads"
            )


def _widths(case: Case) -> tuple[int, int, int]:
    """Numbers of a cached token, numbers of a query token, and heads."""
    if case.op == "indexer":
        heads, width = case.count("index_heads"), case.count("head_dim")
        return width, heads * width, heads
    heads = case.count("heads")
    if "lora" in case.params:
        return case.count("lora") + case.count("rope"), heads * case.count("rope"), heads
    size = case.count("head_size")
    size_v = case.count("head_size_v") or size
    return case.count("kv_heads") * (size + size_v), heads * size, heads


def _lengths(case: Case, name: str) -> list[int]:
    return [int(part) for part in str(case[name]).split("+") if part]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.1f}"
