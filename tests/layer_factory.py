"""Invented layers for tests of selection."""

from __future__ import annotations

from typing import Any

from attnctl.decision import Candidate, Decision
from attnctl.findings import Finding
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import Indexer, LayerGroup, Mla, ModelSpec, State
from attnctl.registry import Registry, load
from attnctl.select import select

LATENT = Mla(
    kv_lora_rank=512,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    prefill_head_size=192,
    prefill_head_size_v=128,
)


def group(kind: str = "full", **more: Any) -> LayerGroup:
    """Two layers with 32 query and 8 KV heads of 128, or what the test says instead."""
    fields = {"layers": (0, 1), "num_heads": 32, "num_kv_heads": 8, "head_size": 128, **more}
    return LayerGroup(kind=kind, **fields)


def latent(topk: int | None = None, heads: int = 128, mla: Mla = LATENT) -> LayerGroup:
    """Latent attention of DeepSeek's widths; sparse where an indexer picks `topk` tokens."""
    return group(
        "mla" if topk is None else "mla_sparse",
        num_heads=heads,
        num_kv_heads=1,
        head_size=mla.kv_lora_rank + mla.qk_rope_head_dim,
        head_size_v=mla.kv_lora_rank,
        mla=mla,
        indexer=None if topk is None else Indexer(heads=64, head_dim=128, topk=topk),
    )


def recurrent(kind: str) -> LayerGroup:
    """A layer that keeps a state."""
    state = State(type=kind, conv_kernel=4, head_k_dim=128, head_v_dim=128, head_dim=128)
    return group(kind, head_size=None, num_heads=None, num_kv_heads=None, state=state)


BY_OP = {
    "paged": group(),
    "diffkv": group(head_size=192, head_size_v=128),
    "mla": latent(),
    "mla_sparse": latent(topk=2048),
    "gdn": recurrent("gdn"),
    "mamba1": recurrent("mamba1"),
    "mamba2": recurrent("mamba2"),
    "short_conv": recurrent("short_conv"),
    "linear": recurrent("linear"),
}
"""Operation -> a plain layer of it."""


def decide(
    layers: LayerGroup,
    machine: Machine,
    *,
    dtype: str = "bfloat16",
    registry: Registry | None = None,
    **options: Any,
) -> Decision:
    """The decision of the real registry (or of this one) for one group of layers."""
    spec = ModelSpec(model_type="invented", groups=(layers,), dtype=dtype, dtype_source="dtype")
    chosen = Options(**options)
    layer = layer_of(spec, layers, chosen)
    return select(layer, machine, registry or load(), chosen)


def pick(layers: LayerGroup, machine: Machine, **options: Any) -> str | None:
    """The name of the backend that was picked."""
    decision = decide(layers, machine, **options)
    return decision.pick.name if decision.pick else None


def eligible(decision: Decision) -> list[str]:
    """Names of the backends that meet every requirement, in the order they are tried."""
    return [candidate.name for candidate in decision.candidates if candidate.ok]


def candidate(decision: Decision, name: str) -> Candidate:
    """What the decision holds of one backend."""
    return next(entry for entry in decision.candidates if entry.name == name)


def reasons(decision: Decision, name: str) -> dict[str, Finding]:
    """Code -> finding that is not met, of one backend."""
    return {finding.code: finding for finding in candidate(decision, name).reasons}
