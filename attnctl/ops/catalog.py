"""The operations by name: whose cases they are (no torch) and who tries them (torch, when run)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from attnctl.exits import InputError
from attnctl.nearest import did_you_mean
from attnctl.ops.case_values import refuse_impossible

if TYPE_CHECKING:
    import torch

    from attnctl.layer import Layer
    from attnctl.ops.case import Case, Value
    from attnctl.ops.compare import Comparison
    from attnctl.runtime import Runtime


class Operation(NamedTuple):
    """Modules of one operation.

    cases: `case_of(op, params)`, `cases(op)` and `layer_for(case)`. trial: `try_case(runtime, case,
    device)`, which alone imports torch.
    """

    cases: str
    trial: str


_PAGED = Operation("attnctl.ops.paged_cases", "attnctl.ops.paged_trial")
_MLA = Operation("attnctl.ops.mla_cases", "attnctl.ops.mla_trial")
_MERGE = Operation("attnctl.ops.merge_states_cases", "attnctl.ops.merge_states_trial")
_SPARSE = Operation("attnctl.ops.mla_sparse_cases", "attnctl.ops.mla_sparse_trial")
_INDEXER = Operation("attnctl.ops.indexer_cases", "attnctl.ops.indexer_trial")
_STATE = Operation("attnctl.ops.state_cases", "attnctl.ops.state_trial")

OPERATIONS = {
    "paged": _PAGED,
    "diffkv": _PAGED,
    "mla": _MLA,
    "merge_states": _MERGE,
    "mla_sparse": _SPARSE,
    "indexer": _INDEXER,
    "gdn": _STATE,
    "mamba1": _STATE,
    "mamba2": _STATE,
    "short_conv": _STATE,
    "linear": _STATE,
}


def all_cases() -> tuple[Case, ...]:
    """Every case of every operation, in the table's order."""
    found: dict[str, Case] = {}
    for op, operation in OPERATIONS.items():
        found.update((one.text, one) for one in _module(operation.cases).cases(op))
    return tuple(found.values())


def case_of(op: str, params: Mapping[str, Value]) -> Case:
    """The case of a text that was pasted back.

    InputError: no such operation or parameter, or values of which no inputs can be made.
    """
    module = _module(known_operation(op).cases)
    found: Case = module.case_of(op, params)
    refuse_impossible(found, module.case_of(op, {}).params)
    return found


def layer_for(case: Case) -> Layer:
    """The demands that a case makes of a backend: what its rules are asked about."""
    layer: Layer = _module(known_operation(case.op).cases).layer_for(case)
    return layer


def try_case(runtime: Runtime, case: Case, device: torch.device | str) -> Comparison:
    """What one backend makes of one case on a device, judged against the specification."""
    found: Comparison = _module(known_operation(case.op).trial).try_case(runtime, case, device)
    return found


def known_operation(op: str, option: str = "") -> Operation:
    """The operation of a name. InputError: there is none. option: which gave the name."""
    operation = OPERATIONS.get(op)
    if operation is None:
        near = did_you_mean(op, OPERATIONS) or f" There are {', '.join(OPERATIONS)}."
        raise InputError(f"{option} {op}".strip() + f": no such operation.{near}")
    return operation


def _module(name: str) -> Any:
    return import_module(name)
