"""Block and page sizes that vLLM would give a whole model on a machine."""

from __future__ import annotations

import msgspec

from attnctl.caches.pages import HybridBlocks
from attnctl.caches.states import StateTensor, state_bytes, state_tensors
from attnctl.engines.values import HybridPlan
from attnctl.engines.vllm.adapter import OFF, explain
from attnctl.engines.vllm.environment import Switches
from attnctl.engines.vllm.facts import Facts
from attnctl.engines.vllm.hybrid import blocks_for
from attnctl.engines.vllm.layers import RunOptions, layer_config, run_dtype
from attnctl.engines.vllm.machine_facts import facts_of_machine
from attnctl.engines.vllm.rules import Table
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec


def hybrid_plan(
    table: Table,
    machine: Machine,
    spec: ModelSpec,
    options: RunOptions,
    num_spec: int = 0,
    switches: Switches = OFF,
) -> HybridPlan:
    """Return the sizes for a model; its largest state counts where kinds of state differ.

    num_spec: speculative tokens. Prefix caching is off: only the last state of a sequence is kept.
    """
    facts, _ = facts_of_machine(machine, switches.aiter)
    groups = sorted(spec.groups, key=lambda group: group.layers[:1])
    attention = [g for g in groups if g.needs_kv_cache and g.kind != "blocksparse"]
    states = [g for g in groups if g.is_ssm and g.state is not None]
    decisions = [
        explain(table, machine, group, options, spec, switches) for group in (*attention, *states)
    ]
    failed = next((d.error for d in decisions if d.error), None)
    try:
        tensors = _largest(facts, states, spec, options, num_spec)
    except InputError as error:
        return HybridPlan(version=table.version, error=failed or f"not known: {error}")
    if switches.conv_transposed:
        tensors = tuple(_transposed(tensor) for tensor in tensors)
    decisions = decisions[: len(attention)]
    names = tuple(table.state_backends[group.kind] for group in states)
    blank = HybridPlan(
        version=table.version,
        state_bytes=state_bytes(tensors),
        attention=tuple(dict.fromkeys(d.pick for d in decisions if d.pick)),
        states=tuple(dict.fromkeys(names)),
        tensors=tensors,
    )
    if failed:
        return msgspec.structs.replace(blank, error=failed)
    picked = [table.row(facts.platform, decision.pick) for decision in decisions]
    layers = {
        row.name: (row, layer_config(facts, group, options, spec, switches.batch_invariant))
        for group, row in zip(attention, picked, strict=True)
        if row is not None
    }
    if not layers:
        return blank
    kv_heads = max(1, (attention[0].num_kv_heads or 1) // options.tp)
    kinds = [group.kind for group in states]
    found = blocks_for(table, facts, list(layers.values()), kv_heads, tensors, kinds)
    return _sized(blank, found, tuple(layers))


def _transposed(tensor: StateTensor) -> StateTensor:
    """Return a convolution's state with its channels first; other tensors as they are."""
    if tensor.name != "conv":
        return tensor
    return msgspec.structs.replace(tensor, shape=tensor.shape[::-1])


def _sized(blank: HybridPlan, found: HybridBlocks | None, names: tuple[str, ...]) -> HybridPlan:
    if found is None:
        what = f"no block size of {' and '.join(names)} holds a state of {blank.state_bytes} bytes"
        return msgspec.structs.replace(blank, error=f"ValueError: {what}")
    return msgspec.structs.replace(
        blank,
        block_size=found.block_size,
        page_bytes=found.page_bytes,
        mamba_page_size_padded=found.padded_page_bytes,
    )


def _largest(
    facts: Facts, states: list[LayerGroup], spec: ModelSpec, options: RunOptions, num_spec: int
) -> tuple[StateTensor, ...]:
    dtype = run_dtype(facts, options, spec)[0]
    found = [
        state_tensors(group.state, dtype=dtype, tp=options.tp, num_spec=num_spec)
        for group in states
        if group.state is not None
    ]
    return max(found, key=state_bytes, default=())
