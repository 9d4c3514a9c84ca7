"""What vLLM would pick on the same facts, without importing or starting it.

`pick` and `hybrid_blocks` answer recorded cases, `explain` and `hybrid_plan` answer for a machine
and a model. Each version of vLLM is one table (VERSIONS); the newest is the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attnctl.engines.values import EngineDecision, HybridPlan
from attnctl.engines.vllm import adapter, hybrid, plan, selector
from attnctl.engines.vllm.environment import switches_of
from attnctl.engines.vllm.layers import RunOptions
from attnctl.engines.vllm.rules import Table
from attnctl.engines.vllm.selector import EnginePick
from attnctl.engines.vllm.v0_33 import TABLE as V0_33
from attnctl.exits import InputError
from attnctl.machine import Machine
from attnctl.model.spec import LayerGroup, ModelSpec

VERSIONS: Mapping[str, Table] = MappingProxyType({V0_33.version: V0_33})
NEWEST = V0_33.version
NOTHING_SET: Mapping[str, str] = MappingProxyType({})


def table_of(version: str | None = None) -> Table:
    """Return the table of a version ("0.33.0" or "0.33"), the newest one for None."""
    if version is None:
        return VERSIONS[NEWEST]
    for name, table in VERSIONS.items():
        if version in (name, name.rpartition(".")[0]):
            return table
    raise InputError(f"--engine-version {version}: no table of it; known are {', '.join(VERSIONS)}")


def pick(
    platform: str,
    arch: str,
    installed: str | frozenset[str],
    config: Mapping[str, Any],
    version: str | None = None,
) -> EnginePick:
    """Return vLLM's pick for one layer; the arguments are the fields of a recorded case.

    installed: a profile ("full", "bare", ...) or names as in facts.Facts.have. config: the layer;
    see facts.Layer. error is the class that vLLM raises.
    """
    return selector.pick(table_of(version), platform, arch, installed, config)


def hybrid_blocks(case: Mapping[str, Any], version: str | None = None) -> dict[str, Any]:
    """Return vLLM's block and page sizes for a recorded hybrid (its `answer` apart).

    Keys: shapes, dtypes, state_bytes, block_size, mamba_block_size, mamba_page_size_padded (bytes,
    None where nothing is padded) and error, the class that vLLM raises.
    """
    return hybrid.hybrid_blocks(table_of(version), case)


def explain(
    machine: Machine,
    group: LayerGroup,
    options: RunOptions,
    spec: ModelSpec | None = None,
    version: str | None = None,
    environment: Mapping[str, str] = NOTHING_SET,
) -> EngineDecision:
    """Return what vLLM would do with one group of layers on a machine, without starting it.

    options: attnctl.layer.Options. spec: the model, whose stated dtypes count where the options
    leave them open. environment: the variables of vLLM's process (environment.VALUES). InputError
    where the machine or the group lacks a fact that vLLM reads.
    """
    switches = switches_of(environment)
    return adapter.explain(table_of(version), machine, group, options, spec, switches)


def hybrid_plan(
    machine: Machine,
    spec: ModelSpec,
    options: RunOptions,
    version: str | None = None,
    num_spec: int = 0,
    environment: Mapping[str, str] = NOTHING_SET,
) -> HybridPlan:
    """Return vLLM's block and page sizes for a whole model; num_spec: speculative tokens."""
    switches = switches_of(environment)
    return plan.hybrid_plan(table_of(version), machine, spec, options, num_spec, switches)
