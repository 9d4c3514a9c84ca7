"""vLLM's choice for a machine and a group of layers, in words and with the flags that pin it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from attnctl.engines.values import EngineDecision
from attnctl.engines.vllm.environment import BATCH_INVARIANT, Switches
from attnctl.engines.vllm.facts import Facts, Layer
from attnctl.engines.vllm.fixes import what_helps, with_fixes
from attnctl.engines.vllm.layers import RunOptions, layer_config, run_dtype
from attnctl.engines.vllm.machine_facts import facts_of_machine
from attnctl.engines.vllm.ranks import rank_error
from attnctl.engines.vllm.rules import Check, Table, reject
from attnctl.engines.vllm.selector import Choice, choose, dims
from attnctl.engines.vllm.validate import validate
from attnctl.findings import Finding
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec

# rows that say something about what a branch of XPU or CPU did not check
UNCHECKED = {"CPU_ATTN", "CPU_MLA", "AMX_MLA", "FLASH_ATTN", "TRITON_ATTN", "TRITON_MLA"}
# CPU_ATTN's kernel takes sinks although its class does not say so
QUIETLY_TAKEN = {"CPU_ATTN": frozenset({"sinks"})}


OFF = Switches()


def explain(
    table: Table,
    machine: Machine,
    group: LayerGroup,
    options: RunOptions,
    spec: ModelSpec | None = None,
    switches: Switches = OFF,
) -> EngineDecision:
    """Return vLLM's decision for one group; `spec` gives the dtypes that the checkpoint states."""
    facts, notes = facts_of_machine(machine, switches.aiter)
    if group.kind in ("none", "recurrent_other", "blocksparse"):
        return _left_out(table, group, notes)
    indivisible = rank_error(group, options.tp)
    if indivisible:
        return EngineDecision(version=table.version, error=indivisible, notes=notes)
    if group.is_ssm:
        return _state(table, group, notes, switches)
    layer = layer_config(facts, group, options, spec, switches.batch_invariant)
    return _selected(table, machine, facts, group, layer, options, spec, notes)


def _selected(
    table: Table,
    machine: Machine,
    facts: Facts,
    group: LayerGroup,
    layer: Layer,
    options: RunOptions,
    spec: ModelSpec | None,
    notes: tuple[str, ...],
) -> EngineDecision:
    choice = _choice(table, facts, layer)
    stated = bool(spec and spec.kv_cache_dtype_from_checkpoint)
    error = _error(choice, layer)
    if error:

        def works(other: Facts, altered: Layer) -> bool:
            trial = _choice(table, other, altered)
            # a forced backend that is ignored is no answer to the demand
            return not _error(trial, altered) and altered.backend in (None, trial.pick)

        error += what_helps(facts, layer, stated, works)
        choice = msgspec.structs.replace(choice, pick=None)
    size = _block_size(table, facts, layer, choice) if group.needs_kv_cache else None
    rejected = {
        name: with_fixes(_reasons(table, name, layer), facts, layer, why, stated)
        for name, why in choice.rejected.items()
    }
    more = (
        run_dtype(facts, options, spec)[1],
        *_about(table, facts, layer, choice, group),
        _with_aiter(table, machine, layer, choice, facts),
    )
    return EngineDecision(
        version=table.version,
        pick=choice.pick,
        error=error,
        requested=layer.backend,
        forced=_forced(table, facts, layer, choice, stated),
        priority=choice.priority,
        rejected=rejected,
        mla_prefill=choice.mla_prefill,
        block_size=size,
        flags=_flags(facts, layer, choice, size),
        notes=(*notes, *(note for note in more if note)),
    )


def _error(choice: Choice, layer: Layer) -> str | None:
    """Return what vLLM raises for a layer, at selection or at start."""
    return _sentence(choice, layer) if choice.error else _prefill_error(choice, layer)


def _prefill_error(choice: Choice, layer: Layer) -> str | None:
    """Return what vLLM raises at start where a latent layer has a backend for decoding alone."""
    if not layer.use_mla or choice.mla_prefill is not None:
        return None
    widths = ", ".join(str(width) for width in dims(layer))
    what = f"no prefill backend takes latent widths {widths} (nope, rope, v) in {layer.dtype} here"
    return f"ValueError: {what}; {choice.pick} would only decode"


def _forced(
    table: Table, facts: Facts, layer: Layer, choice: Choice, stated: bool
) -> tuple[Finding, ...]:
    """Return why a forced backend is refused, each reason with what would change it."""
    row = table.backends.get(layer.backend or "")
    if layer.backend is None or choice.pick == layer.backend:
        return ()
    if row is None or facts.platform in table.branches:
        return choice.why
    return with_fixes(partial(validate, row), facts, layer, choice.why, stated)


def _state(
    table: Table, group: LayerGroup, notes: tuple[str, ...], switches: Switches
) -> EngineDecision:
    name = table.state_backends[group.kind]
    if switches.batch_invariant:
        error = f"RuntimeError: {name} is not batch-invariant, and {BATCH_INVARIANT}=1 demands it"
        return EngineDecision(version=table.version, error=error, notes=notes)
    fixed = "the kind of layer fixes the backend: nothing is selected and no flag changes it"
    return EngineDecision(version=table.version, pick=name, notes=(*notes, fixed))


def _left_out(table: Table, group: LayerGroup, notes: tuple[str, ...]) -> EngineDecision:
    if group.kind == "none":
        nothing = "these layers cache nothing, so vLLM selects nothing for them"
        return EngineDecision(version=table.version, notes=(*notes, nothing))
    error = f"vLLM {table.version} has no backend for layers of kind {group.kind}"
    return EngineDecision(version=table.version, error=error, notes=notes)


def _choice(table: Table, facts: Facts, layer: Layer) -> Choice:
    """Return the selector's choice; layers with other V than K width take their model's class."""
    if layer.head_size_v is None or facts.platform not in table.orders or layer.backend is not None:
        return choose(table, facts, layer)
    names = tuple(name for name, _ in table.unequal_widths)
    answers = {name: _reasons(table, name, layer)(facts, layer) for name in names}
    rejected = {name: why for name, why in answers.items() if why}
    pick = next((name for name in names if name not in rejected), None)
    error = None if pick else "ValueError"
    return Choice(pick=pick, error=error, priority=names, rejected=rejected)


def _reasons(
    table: Table, name: str, layer: Layer
) -> Callable[[Facts, Layer], tuple[Finding, ...]]:
    """Return what asks why a backend is rejected: its row, and what the model's class checks."""
    own = dict(table.unequal_widths).get(name) if layer.head_size_v is not None else None
    row = table.backends[name]
    if own is None:
        return partial(validate, row)

    def both(facts: Facts, layer: Layer) -> tuple[Finding, ...]:
        lacking = () if own.test(facts, layer) else (_missing(own, facts, layer),)
        return validate(row, facts, layer) + lacking

    return both


def _missing(check: Check, facts: Facts, layer: Layer) -> Finding:
    found = check.found(facts, layer) if check.found is not None else facts.arch
    return reject("kernel_missing", check.wanted, found)


def _sentence(choice: Choice, layer: Layer) -> str:
    if choice.why and choice.why[-1].code == "platform":
        return f"{choice.error}: {choice.why[-1].wanted}"
    if choice.why:
        reasons = "; ".join(f"it wants {f.wanted} and finds {f.found}" for f in choice.why)
        return f"{choice.error}: {layer.backend} is forced and does not take this layer: {reasons}"
    return f"{choice.error}: none of the {len(choice.priority)} candidates takes this layer"


def _block_size(table: Table, facts: Facts, layer: Layer, choice: Choice) -> int | None:
    row = table.row(facts.platform, choice.pick)
    if layer.block_size is not None or row is None:
        return layer.block_size
    default = table.default_block_sizes[facts.platform]
    return row.kernel_blocks(facts, layer).preferred(default)


def _flags(facts: Facts, layer: Layer, choice: Choice, block_size: int | None) -> dict[str, str]:
    if choice.pick is None:
        return {}
    flags = {"--kv-cache-dtype": layer.kv_cache_dtype or "auto"}
    # CPU ignores every name but this one
    if facts.platform != "cpu" or choice.pick == "CPU_MLA":
        flags = {"--attention-backend": choice.pick, **flags}
    return flags if block_size is None else {**flags, "--block-size": str(block_size)}


def _about(
    table: Table, facts: Facts, layer: Layer, choice: Choice, group: LayerGroup
) -> list[str]:
    notes = []
    if choice.fell_back:
        notes.append(f"{layer.backend} does not take this cache, so vLLM picks automatically")
    elif layer.backend not in (None, choice.pick) and choice.pick:
        notes.append(f"vLLM ignores a forced {layer.backend} here ({facts.platform})")
    if layer.backend is None and choice.pick in choice.priority:
        for name in choice.priority[: choice.priority.index(choice.pick or "")]:
            if [f.code for f in choice.rejected[name]] == ["block_size"]:
                notes.append(
                    f"--block-size {layer.block_size} alone keeps {name} from being picked"
                )
    if layer.head_size_v is not None and facts.platform in table.branches:
        notes.append("K and V widths differ, which vLLM does not look at on this platform")
    if group.kind == "chunked":
        notes.append(
            "vLLM wraps this backend for chunked layers; selection does not look at chunks"
        )
    if facts.platform in table.branches and choice.pick in UNCHECKED:
        notes.extend(_unchecked(table, facts, layer, str(choice.pick)))
    return notes


def _unchecked(table: Table, facts: Facts, layer: Layer, name: str) -> list[str]:
    quiet = QUIETLY_TAKEN.get(name, frozenset())
    late = [f for f in validate(table.backends[name], facts, layer) if f.code not in quiet]
    return [
        f"not checked at selection: {name} declares {f.wanted}, and this layer has {f.found}"
        for f in late
    ]


def _with_aiter(table: Table, machine: Machine, layer: Layer, choice: Choice, facts: Facts) -> str:
    """Return what VLLM_ROCM_USE_AITER=1 would change, "" where nothing."""
    if facts.platform != "rocm" or "aiter" not in facts.have or "aiter_env" in facts.have:
        return ""
    switched = facts_of_machine(machine, aiter_env=True)[0]
    other = _choice(table, switched, layer)
    if other.pick == choice.pick or _error(other, layer):
        return ""
    change = f"VLLM_ROCM_USE_AITER=1 would change the pick to {other.pick}"
    return f"{change} (--engine-env sets it; vLLM's default is off)"
