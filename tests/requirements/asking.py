"""A rule asked of a machine and a layer."""

from __future__ import annotations

import msgspec

from attnctl.findings import Finding
from attnctl.layer import Layer, Options, layer_of
from attnctl.machine import Machine, Package
from attnctl.model.spec import LayerGroup, ModelSpec
from attnctl.requirements import Rule, Subject
from attnctl.select import subject_of
from tests import machine_factory as box
from tests.layer_factory import group


def layer(layers: LayerGroup, dtype: str = "bfloat16", **options: object) -> Layer:
    spec = ModelSpec(model_type="m", groups=(layers,), dtype=dtype)
    return layer_of(spec, layers, Options(**options))


def ask(rule: Rule, machine: Machine, layers: LayerGroup | None = None, **more: object) -> Finding:
    """The finding, which the layer must raise."""
    found = answer(rule, machine, layers, **more)
    assert found is not None
    return found


def answer(
    rule: Rule, machine: Machine, layers: LayerGroup | None = None, **more: object
) -> Finding | None:
    return rule.check(subject(machine, layers, **more))


def subject(machine: Machine, layers: LayerGroup | None = None, **more: object) -> Subject:
    return subject_of(machine, layer(layers or group(), **more))


def with_package(machine: Machine, name: str, found: Package) -> Machine:
    return msgspec.structs.replace(machine, packages={**machine.packages, name: found})


BARE = box.cuda(9, packages=("torch",))
