"""A group of layers made ready by attnctl.plan: the runtime, knobs and cache of each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from attnctl.arguments import refuse_no_count, shown
from attnctl.decision import Decision
from attnctl.exits import InputError
from attnctl.plans.blocks import LATENT, block_of
from attnctl.plans.tensors import zeroed_cache, zeroed_states
from attnctl.profile.pick import Pick, Table, phase_of
from attnctl.registry import Registry
from attnctl.requirements.rule import Subject
from attnctl.runtime import open_backend
from attnctl.tune.settings import tuned

if TYPE_CHECKING:
    from torch import Tensor

REMEMBERED = 4096
"""Batch shapes whose pick is kept."""


class Planned(msgspec.Struct, frozen=True):
    """A batch's metadata with the runtime that was chosen for it, and why."""

    runtime: Any
    metadata: Any
    pick: Pick


class LayerPlan:
    """One group of layers: its decision, and a runtime for every batch shape.

    Any backend that is eligible and keeps the same cache may run a batch; one that lays its cache
    out otherwise is left out, and the plan's notes say so.
    """

    def __init__(
        self, subject: Subject, decision: Decision, registry: Registry, table: Table
    ) -> None:
        if decision.pick is None:
            raise InputError(_none(decision))
        if not decision.pick.runnable:
            raise InputError(f"{decision.pick.name}: {decision.pick.note}")
        self.layer = subject.layer
        self.decision = decision
        self._registry = registry
        self._table = table
        self.runtime = open_backend(decision.pick.name, registry)
        self._block = block_of(subject, decision, registry, table)
        self._runtimes: dict[tuple[Any, ...], Any] = {}
        self._picks: dict[tuple[int, int, int], tuple[Any, Pick]] = {}

    @property
    def name(self) -> str:
        """The backend that the decision names; a profile may name others for some batches."""
        return str(self.runtime.get_name())

    @property
    def is_ssm(self) -> bool:
        return bool(self.runtime.is_ssm())

    @property
    def block_size(self) -> int | None:
        """Tokens in a page of the cache, the profile's where it asks for one; None for states."""
        return self._block

    def pick(self, batch: int, context: int, query: int) -> Pick:
        """What runs B sequences of S context tokens with so many new ones each, and why."""
        return self._chosen(batch, context, query)[1]

    def new_cache(self, num_blocks: int, *, device: Any = None, dtype: Any = None) -> Tensor:
        """A zeroed cache [N, P, ...] in the order of memory that the backend likes best.

        dtype: torch's; the model's where none is given. InputError: the layers keep states.
        """
        if self.is_ssm or self.block_size is None:
            raise InputError(f"{self.name}: it keeps states by slot; ask for new_states(slots)")
        if self.layer.op in LATENT and self.layer.group.mla is None:
            raise InputError(f"{self.name}: the configuration gives no latent widths")
        return zeroed_cache(self.runtime, self.layer, num_blocks, self.block_size, device, dtype)

    def new_states(self, slots: int, *, device: Any = None, num_spec: int = 0) -> dict[str, Tensor]:
        """Zeroed pools [slots, ...] by name ("conv", "ssm"). InputError: the layers keep none."""
        if self.layer.group.state is None or not self.is_ssm:
            raise InputError(f"{self.name}: it keeps a cache of blocks; ask for new_cache(blocks)")
        return zeroed_states(self.layer, slots, device, num_spec)

    def build_metadata(
        self, query_start_loc: Tensor, *rest: Any, max_query_len: int, **named: Any
    ) -> Planned:
        """The runtime's own build_metadata, of the backend that this batch's shape chooses."""
        context = named.get("max_seq_len", max_query_len)
        if type(context) is not int or type(max_query_len) is not int:
            refuse_no_count("max_query_len", max_query_len)
            refuse_no_count("max_seq_len", context)
            context, max_query_len = int(context), int(max_query_len)
        if getattr(query_start_loc, "ndim", 0) != 1:
            found = shown(query_start_loc)
            raise InputError(f"query_start_loc {found}: give a tensor [B + 1] of integers")
        runtime, pick = self._chosen(query_start_loc.shape[0] - 1, context, max_query_len)
        built = runtime.build_metadata(query_start_loc, *rest, max_query_len=max_query_len, **named)
        return Planned(runtime, built, pick)

    def write_cache(self, *tensors: Any, **named: Any) -> None:
        """The chosen runtime's write_cache."""
        runtime, plain, named = _unwrapped(tensors, named)
        runtime.write_cache(*plain, **named)

    def forward(self, *tensors: Any, **named: Any) -> Any:
        """The chosen runtime's forward."""
        runtime, plain, named = _unwrapped(tensors, named)
        return runtime.forward(*plain, **named)

    def prefill(self, *tensors: Any, **named: Any) -> Any:
        """The chosen runtime's prefill, of backends for latent attention."""
        runtime, plain, named = _unwrapped(tensors, named)
        return runtime.prefill(*plain, **named)

    def _chosen(self, batch: int, context: int, query: int) -> tuple[Any, Pick]:
        # a decoding batch grows by a token a step: contexts within 1/8 of an octave are alike
        key = batch, context if context < 64 else _eighth(context), query
        found = self._picks.get(key)
        if found is None:
            if len(self._picks) >= REMEMBERED:
                self._picks.clear()
            pick = self._table.pick(phase_of(query), batch, key[1], query)
            found = self._picks[key] = self._runtime(pick), pick
        return found

    def _runtime(self, pick: Pick) -> Any:
        key = pick.backend, pick.kernel, tuple(sorted(pick.knobs.items()))
        if key not in self._runtimes:
            runtime = open_backend(pick.backend, self._registry) if pick.backend else self.runtime
            self._runtimes[key] = tuned(runtime, pick.knobs, pick.kernel)
        return self._runtimes[key]


def _none(decision: Decision) -> str:
    kind = decision.group.kind
    if decision.requested:
        return f"{decision.requested} was requested for layers of kind {kind} and cannot serve them"
    return f"no backend is eligible for layers of kind {kind}: attnctl select says why"


def _eighth(count: int) -> int:
    """The count rounded to three bits after the first: what stands for it in a lookup."""
    shift = count.bit_length() - 4
    return (count >> shift) << shift


def _unwrapped(
    tensors: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """The runtime that the metadata among these is for, and the arguments as it takes them."""
    plain, runtime = list(tensors), None
    for place, one in enumerate(tensors):
        if type(one) is Planned:
            runtime, plain[place] = one.runtime, one.metadata
    metadata = named.get("metadata")
    if type(metadata) is Planned:
        runtime, named = metadata.runtime, {**named, "metadata": metadata.metadata}
    if runtime is None:
        raise InputError("a planned layer takes the metadata of its own build_metadata")
    return runtime, plain, named
