"""What an engine answers, as values: light, so that a report can hold them without the rules."""

from __future__ import annotations

import msgspec

from attnctl.caches.states import StateTensor
from attnctl.findings import Finding

EXTRA_PACKAGES = ("b12x", "flashinfer", "flashinfer_cubin", "nvcc", "tokenspeed_mla", "vllm")
"""What an engine's rules ask about beside the registry's: a user may say that they are there."""


class EngineDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of an engine does with one group of layers.

    pick: None where it raises, then error says what and why in one sentence. requested: the
    backend that the user forces; forced: why the engine refuses it. rejected: backend -> every
    reason, with what it wanted and what it found, of the automatic list. flags: command-line flags
    that pin the pick. block_size: tokens in a block for this group alone; None for states.
    """

    engine: str = "vllm"
    version: str
    pick: str | None = None
    error: str | None = None
    requested: str | None = None
    forced: tuple[Finding, ...] = ()
    priority: tuple[str, ...] = ()
    rejected: dict[str, tuple[Finding, ...]] = {}
    mla_prefill: str | None = None
    block_size: int | None = None
    flags: dict[str, str] = {}
    notes: tuple[str, ...] = ()


class HybridPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One block size for the attention layers, and the page that holds a state.

    block_size: tokens; None where vLLM raises (error), no layer keeps a KV cache, or the backend's
    block sizes are not known (XPU_MLA_SPARSE). state_bytes: of one state layer and sequence, 0
    without such layers. page_bytes: of one attention block in one layer. mamba_page_size_padded:
    what a state's page is padded to, None where it fits. attention / states: the backends in use,
    in the order of their first layers.
    """

    engine: str = "vllm"
    version: str
    block_size: int | None = None
    page_bytes: int | None = None
    state_bytes: int = 0
    mamba_page_size_padded: int | None = None
    attention: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    tensors: tuple[StateTensor, ...] = ()
    error: str | None = None


class Difference(msgspec.Struct, frozen=True):
    """One group for which the engine and the registry choose apart; because: in one sentence."""

    group: int
    engine: str | None
    registry: str | None
    because: str


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's answer for every group, in the model's order.

    plan: its block and page sizes for the model. arguments: the command-line flags that pin its
    picks, one per line; a flag that groups need apart is left out, but for the block size, which
    is the plan's; a note says so. None are given where the engine does not start. environment: the
    variables that it was asked under.
    """

    engine: str
    version: str
    groups: tuple[EngineDecision, ...]
    plan: HybridPlan | None
    differences: tuple[Difference, ...]
    arguments: tuple[str, ...]
    notes: tuple[str, ...]
    environment: dict[str, str] = {}

    @property
    def errors(self) -> tuple[str, ...]:
        """What the engine raises, each sentence once: for groups, then for the whole model."""
        found = [group.error for group in self.groups]
        found.append(self.plan.error if self.plan else None)
        return tuple(dict.fromkeys(error for error in found if error))

    @property
    def answered(self) -> bool:
        return not self.errors
