"""What runs each layer of a model on this machine, made ready: the library's way to a profile.

    plan = attnctl.plan("config.json")              # or a dict, a ModelSpec; profile="tuned.json"
    layer = plan[0]                                 # layer 0, by its index in the model
    cache = layer.new_cache(num_blocks, device="cuda")
    metadata = layer.build_metadata(
        query_start_loc, seq_lens, block_table, slot_mapping, max_query_len=..., max_seq_len=...
    )
    layer.write_cache(key, value, cache, metadata, params)
    out = layer.forward(query, cache, metadata, params)

Which backend runs a batch, and with which knobs, is looked up in the profile's timings by the shape
of the batch when its metadata is built: nothing is measured, and nothing is compiled beyond what a
first use compiles. The layers of a group share one LayerPlan, so a batch's metadata serves all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from attnctl.arguments import refuse_other, shown
from attnctl.decision import Decision
from attnctl.exits import InputError, NoLayerError
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import ModelSpec
from attnctl.plan_blocks import LATENT, block_of, interchangeable, sized, widths
from attnctl.profile.hashes import KernelHashes, kernel_hashes
from attnctl.profile.live import live, stated
from attnctl.profile.match import match
from attnctl.profile.pick import Pick, Picker, Table, phase_of
from attnctl.profile.shelf import Shelf
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.runtime import open_backend
from attnctl.select import select_model
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

    def __init__(self, layer: Layer, decision: Decision, registry: Registry, table: Table) -> None:
        if decision.pick is None:
            raise InputError(_none(decision))
        if not decision.pick.runnable:
            raise InputError(f"{decision.pick.name}: {decision.pick.note}")
        self.layer = layer
        self.decision = decision
        self._registry = registry
        self._table = table
        self.runtime = open_backend(decision.pick.name, registry)
        self._block = block_of(layer, decision, registry, table)
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
        import torch

        if self.is_ssm or self.block_size is None:
            raise InputError(f"{self.name}: it keeps states by slot; ask for new_states(slots)")
        if self.layer.op in LATENT and self.layer.group.mla is None:
            raise InputError(f"{self.name}: the configuration gives no latent widths")
        lengths = widths(self.layer.op, self.layer.group, self.layer.kv_heads)
        shape = self.runtime.cache_shape(num_blocks, self.block_size, *lengths)
        order = getattr(self.runtime, "cache_stride_order", lambda: range(len(shape)))()
        memory = torch.zeros(
            [shape[axis] for axis in order],
            dtype=dtype or getattr(torch, self.layer.dtype),
            device=device,
        )
        return memory.permute([list(order).index(axis) for axis in range(len(shape))])

    def new_states(self, slots: int, *, device: Any = None, num_spec: int = 0) -> dict[str, Tensor]:
        """Zeroed pools [slots, ...] by name ("conv", "ssm"). InputError: the layers keep none."""
        import torch

        from attnctl.cache import state_tensors

        state = self.layer.group.state
        if state is None or not self.is_ssm:
            raise InputError(f"{self.name}: it keeps a cache of blocks; ask for new_cache(blocks)")
        return {
            one.name: torch.zeros(slots, *one.shape, dtype=getattr(torch, one.dtype), device=device)
            for one in state_tensors(
                state,
                dtype=self.layer.dtype,
                conv_dtype=state.conv_dtype or "auto",
                ssm_dtype=state.ssm_dtype or "auto",
                tp=self.layer.tp,
                num_spec=num_spec,
            )
        }

    def build_metadata(
        self, query_start_loc: Tensor, *rest: Any, max_query_len: int, **named: Any
    ) -> Planned:
        """The runtime's own build_metadata, of the backend that this batch's shape chooses."""
        context = named.get("max_seq_len", max_query_len)
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


class Plan(Mapping[int, LayerPlan]):
    """Layer index -> LayerPlan, for every layer that holds attention or a state."""

    def __init__(self, groups: Sequence[LayerPlan], notes: Sequence[str] = ()) -> None:
        self.groups = tuple(groups)
        self.notes = tuple(notes)
        self._layers = {index: one for one in groups for index in one.layer.group.layers}

    def __getitem__(self, layer: int) -> LayerPlan:
        """The plan of a layer. NoLayerError: none of that index holds attention or a state."""
        try:
            return self._layers[layer]
        except (KeyError, TypeError):
            raise NoLayerError(self._absent(layer)) from None

    def _absent(self, layer: object) -> str:
        known = sorted(self._layers)
        if not known:
            return f"layer {shown(layer)}: the model has no layers that hold attention or a state"
        more = ", though not all of them" if len(known) <= known[-1] - known[0] else ""
        return (
            f"layer {shown(layer)}: the plan holds layers {known[0]} to {known[-1]}{more}; "
            "ask with one of list(plan)"
        )

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._layers))

    def __len__(self) -> int:
        return len(self._layers)


def plan(
    model: str | os.PathLike[str] | dict[str, Any] | ModelSpec,
    machine: Machine | None = None,
    *,
    profile: str | os.PathLike[str] | Profile | None = None,
    options: Options | None = None,
    registry: Registry | None = None,
    device: int = 0,
) -> Plan:
    """The backends of a model's layers on a machine, ready to call.

    model: what attnctl.read_model takes. machine: this one where none is given. profile: a file or
    a read one; without it ATTNCTL_PROFILE, the user's and the bundled profiles are searched, and
    "none" leaves all of them out. device: its logical index, as --device takes it. InputError: no
    backend is eligible for a group of layers, or an argument makes no sense.
    """
    from attnctl.model import read_model
    from attnctl.registry import load

    registry = registry or load()
    options = Options() if options is None else options
    spec = model if isinstance(model, ModelSpec) else read_model(model)
    if profile is not None:
        refuse_other("profile", profile, (str, os.PathLike, Profile), 'a file, a Profile or "none"')
    if machine is None:
        from attnctl.probe import probe

        machine = probe()
    decisions = select_model(spec, machine, registry, options, device=device)
    found, notes = _timings(profile, machine, device, registry)
    picker = Picker(found)
    groups = []
    for decision in decisions:
        if not decision.needs_backend:
            continue
        layer = layer_of(spec, decision.group, options)
        eligible, left_out = interchangeable(decision, registry)
        table, unable = sized(layer, decision, registry, picker, eligible)
        notes += (*left_out, *unable)
        groups.append(LayerPlan(layer, decision, registry, table))
    return Plan(groups, notes)


def _timings(
    profile: str | os.PathLike[str] | Profile | None,
    machine: Machine,
    device: int,
    registry: Registry,
) -> tuple[Profile | None, tuple[str, ...]]:
    """The live timings that fit this device, and a sentence for each profile that does not."""
    gpu = machine.gpus[device] if machine.gpus else None
    if isinstance(profile, Profile):
        found = match(profile, machine, gpu)
        if not found.usable:
            return None, (f"profile {profile.name} is {found.status} here and is not used",)
        hashes = kernel_hashes(registry, stated(profile.entries), KernelHashes())
        return live(profile, hashes)[0], ()
    fit = Shelf(None if profile is None else os.fspath(profile), os.environ).fit(
        machine, gpu, registry
    )
    notes = [
        f"profile {one.name} [{one.origin}] is {one.status} here"
        + ("" if one.status == "stale" else " and is not used")
        for one in fit.considered
        if one.status != "valid"
    ]
    return fit.profile, tuple(notes)


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
