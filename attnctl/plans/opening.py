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
from typing import Any

from attnctl.arguments import refuse_other, shown
from attnctl.exits import InputError, NoLayerError
from attnctl.layer import Options, layer_of
from attnctl.machine import Machine
from attnctl.model.spec import ModelSpec
from attnctl.plans.blocks import interchangeable, sized
from attnctl.plans.layers import LayerPlan, Planned
from attnctl.plans.settings import applicable
from attnctl.profile.blocks import for_users_block
from attnctl.profile.document import shape_of
from attnctl.profile.loading import timings_for
from attnctl.profile.pick import Picker
from attnctl.profile.values import Profile
from attnctl.registry import Registry
from attnctl.select import platform_of, select_model, subject_of
from attnctl.selection.memo import Memo

__all__ = ["LayerPlan", "Plan", "Planned", "plan"]


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
    memo = Memo()
    decisions = select_model(spec, machine, registry, options, memo=memo, device=device)
    found, notes = timings_for(profile, machine, device, registry)
    if options.one_block_size and options.block_size is None:
        options, told = _on_one_block(spec, machine, registry, options, device, found, memo)
        notes = (*notes, *told)
        decisions = select_model(spec, machine, registry, options, memo=memo, device=device)
    groups = []
    for decision in decisions:
        if not decision.needs_backend:
            continue
        subject = subject_of(machine, layer_of(spec, decision.group, options), device)
        found, other_blocks = for_users_block(found, subject.layer, registry, platform_of(machine))
        eligible, left_out = interchangeable(decision, registry)
        found, missed = applicable(found, shape_of(subject.layer), eligible, registry)
        table, unable = sized(subject, decision, registry, Picker(found), eligible)
        untimed = (f"{decision.group.kind} layers: {other_blocks}",) if other_blocks else ()
        notes += (*untimed, *left_out, *missed, *unable)
        groups.append(LayerPlan(subject, decision, registry, table))
    return Plan(groups, notes)


def _on_one_block(
    spec: ModelSpec,
    machine: Machine,
    registry: Registry,
    options: Options,
    device: int,
    profile: Profile | None,
    memo: Memo,
) -> tuple[Options, tuple[str, ...]]:
    """The options with the block size that serves all layers best, and a sentence on what it costs.

    InputError: there is none.
    """
    from attnctl.render.block_sizes import said
    from attnctl.selection.one_block import on_best, one_block

    own = select_model(spec, machine, registry, options, memo=memo, device=device, profile=profile)
    costs = one_block(
        own, spec, machine, registry, options, device=device, profile=profile, memo=memo
    )
    sized, costs = on_best(options, costs)
    if costs is None or not costs.differs:
        return sized, ()
    text = said(costs, [f"{one.group.kind} layers" for one in own])
    if costs.best is None:
        raise InputError(f"one_block_size: no one size serves all layers: {text}")
    return sized, (text,)
