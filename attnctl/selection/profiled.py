"""What the profiles say of a model's layers on one device, for the answer of a selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnctl.decision import Decision
from attnctl.layer import Layer, Options
from attnctl.machine import Machine
from attnctl.model.spec import ModelSpec
from attnctl.profile.document import shape_of
from attnctl.profile.shelf import Fit, Shelf
from attnctl.registry import Registry
from attnctl.select import platform_of
from attnctl.selection.memo import Memo
from attnctl.selection.report import Timed
from attnctl.selection.timed import Span

if TYPE_CHECKING:
    from attnctl.profile.values import Profile
    from attnctl.selection.sweep import Ask


class Profiled:
    """The profiles that fit one device, asked about one model under one set of options.

    whole: other shapes than the model's are asked about as well (what if, other head sizes).
    """

    def __init__(
        self,
        shelf: Shelf | None,
        spec: ModelSpec,
        machine: Machine,
        registry: Registry,
        options: Options,
        *,
        device: int,
        memo: Memo,
        whole: bool = False,
    ) -> None:
        self._spec, self._machine, self._registry = spec, machine, registry
        self._device = device
        self._memo = memo
        self.take(options)
        self._fit = Fit(profile=None, considered=())
        if shelf is not None and shelf.sources:
            gpus = machine.gpus
            shapes = None if whole else [shape_of(one) for one in self._layers.values()]
            self._fit = shelf.fit(machine, gpus[device] if gpus else None, registry, shapes)
        self.profile = self._fit.profile
        self.told = self._fit.told

    def take(self, options: Options) -> None:
        """Asks under these options from now on."""
        self._options = options
        groups = self._spec.groups
        self._layers = {id(one): self._memo.layer(self._spec, one, options) for one in groups}

    def groups(
        self, decisions: Sequence[Decision], mapped: bool, ask: Ask | None
    ) -> list[Timed] | None:
        """One per decision; None where there is nothing to say."""
        if self.profile is None and not mapped and ask is None:
            return None
        return [self._group(decision, mapped, ask) for decision in decisions]

    def _group(self, decision: Decision, mapped: bool, ask: Ask | None) -> Timed:
        layer = self._layers[id(decision.group)]
        place = self._fit.origins.get(shape_of(layer).full)
        by = None if place is None else self._fit.considered[place].name
        if not mapped and ask is None:
            return Timed(by=by)
        from attnctl.profile.blocks import for_users_block
        from attnctl.selection.sensitivity import map_group

        platform = platform_of(self._machine)
        profile, _ = for_users_block(self.profile, layer, self._registry, platform)
        return Timed(
            by=by,
            map=map_group(decision, layer, profile) if mapped else None,
            sweep=None if ask is None else self._sweep(decision, layer, ask, profile),
        )

    def _sweep(
        self, decision: Decision, layer: Layer, ask: Ask, profile: Profile | None
    ) -> tuple[Span, ...]:
        """profile: with what it says of the layer on the block size of the options."""
        from attnctl.selection.sensitivity import head_size_decision, sweep_group

        resized = head_size_decision(
            self._spec,
            decision.group,
            self._machine,
            self._registry,
            self._options,
            device=self._device,
            profile=self.profile,
        )
        return sweep_group(ask, decision, layer, profile, resized)
