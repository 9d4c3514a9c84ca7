"""vLLM's choice for one layer: pick or error, and why every other candidate was rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from attnctl.engines.vllm.facts import Facts, Layer, facts_of
from attnctl.engines.vllm.rules import HALF, Order, Table, reject
from attnctl.engines.vllm.validate import validate
from attnctl.findings import Finding


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM does with one layer.

    error: the class of what it raises. why: findings behind an error or a branch. rejected: of the
    automatic list, also where a backend was forced. fell_back: a forced backend was replaced.
    """

    pick: str | None = None
    error: str | None = None
    why: tuple[Finding, ...] = ()
    priority: tuple[str, ...] = ()
    rejected: dict[str, tuple[Finding, ...]] = {}
    mla_prefill: str | None = None
    fell_back: bool = False


class EnginePick(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a recorded case: `rejected` maps a backend to the slugs of its reasons."""

    pick: str | None
    error: str | None
    priority: tuple[str, ...]
    rejected: dict[str, frozenset[str]]
    mla_prefill: str | None = None


def choose(table: Table, facts: Facts, layer: Layer) -> Choice:
    """Return vLLM's choice for one layer on one platform."""
    branches = table.branches.get(facts.platform)
    choice = _listed(table, facts, layer) if branches is None else _branched(table, facts, layer)
    if not layer.want_prefill:
        return choice
    return msgspec.structs.replace(choice, mla_prefill=prefill_backend(table, facts, layer))


def candidates(orders: tuple[Order, ...], facts: Facts, layer: Layer) -> tuple[str, ...]:
    """Return the names of the first order that fits, best first."""
    order = next(order for order in orders if order.when.test(facts, layer))
    return tuple(name for name, when in order.names if when.test(facts, layer))


def _listed(table: Table, facts: Facts, layer: Layer) -> Choice:
    names = candidates(table.orders[facts.platform], facts, layer)
    answers = {name: validate(table.backends[name], facts, layer) for name in names}
    rejected = {name: reasons for name, reasons in answers.items() if reasons}
    automatic = next((name for name in names if name not in rejected), None)
    pick, fell_back = automatic, False
    why: tuple[Finding, ...] = ()
    if layer.backend is not None:
        pick, why = _forced(table, facts, layer)
        if pick is None and _may_fall_back(facts, layer, why):
            pick, fell_back = automatic, True
    error = None if pick else "ValueError"
    return Choice(
        pick=pick, error=error, why=why, priority=names, rejected=rejected, fell_back=fell_back
    )


def _forced(table: Table, facts: Facts, layer: Layer) -> tuple[str | None, tuple[Finding, ...]]:
    name = str(layer.backend)
    row = table.backends.get(name)
    if row is None:
        return None, (reject("unknown_backend", "a backend that vLLM ships a class for", name),)
    why = validate(row, facts, layer)
    return (None if why else name), why


def _may_fall_back(facts: Facts, layer: Layer, why: tuple[Finding, ...]) -> bool:
    """Return whether ROCm's special case holds: only a packed cache dtype was in the way."""
    packed = str(layer.kv_cache_dtype).startswith(("turboquant_", "ultraquant_4bit"))
    return facts.platform == "rocm" and packed and [f.code for f in why] == ["kv_cache_dtype"]


def _branched(table: Table, facts: Facts, layer: Layer) -> Choice:
    tried: tuple[Finding, ...] = ()
    for branch in table.branches[facts.platform]:
        if not branch.when(facts, layer):
            continue
        if branch.valid is not None:
            tried = validate(table.backends[branch.valid], facts, layer)
            if tried:
                continue
        why = (*tried, reject("platform", branch.because, facts.arch)) if branch.error else ()
        return Choice(pick=branch.pick, error=branch.error, why=why)
    raise AssertionError(f"the branches of {facts.platform} end without an answer")


def dims(layer: Layer) -> tuple[int | None, ...]:
    """Return (qk_nope, qk_rope, v) of a latent layer; None where the model does not say."""
    return tuple(layer.width(n) for n in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))


def prefill_backend(table: Table, facts: Facts, layer: Layer) -> str | None:
    """Return the prefill kernel of an MLA layer, None where vLLM raises for want of one."""
    rows = table.prefill[facts.platform]
    # XPU has no capability and CPU its own kernels: neither looks at the dtype
    if facts.platform in ("cuda", "rocm") and layer.dtype not in HALF:
        return None
    widths = dims(layer)
    for name in candidates(table.prefill_orders[facts.platform], facts, layer):
        row = rows[name]
        if (not row.dims or widths in row.dims) and row.when.test(facts, layer):
            return name
    return None


def pick(
    table: Table,
    platform: str,
    arch: str,
    installed: str | frozenset[str],
    config: Mapping[str, Any],
) -> EnginePick:
    """Return the answer to a recorded case; the arguments are its fields."""
    facts = facts_of(platform, arch, installed)
    choice = choose(table, facts, msgspec.convert(dict(config), Layer))
    slugs = {
        name: frozenset(finding.code for finding in reasons)
        for name, reasons in choice.rejected.items()
    }
    return EnginePick(
        pick=choice.pick,
        error=choice.error,
        priority=choice.priority,
        rejected=slugs,
        mla_prefill=choice.mla_prefill,
    )
