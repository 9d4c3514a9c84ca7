"""What every backend of the state-space family takes for granted of a call: refusals.

Types, shapes, dtypes and devices alone are looked at: nothing here waits for a GPU. What a batch's
tensors hold is looked at in batch_checks. Sentences begin with the name of the backend.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NoReturn

import torch
from torch import Tensor

from attnctl.arguments import shown
from attnctl.kernels.batch_checks import FLOATS, check_tensors, refuse
from attnctl.kernels.paged.checks import check_spread
from attnctl.kernels.states.operands_checks import ANY, OPERATIONS, Shape

STRIDED = torch.strided
NUMBERS = FLOATS | {torch.float64}


def check_call(name: str, op: str, inputs: Any, state: Any, out: Any) -> tuple[Shape, torch.dtype]:
    """Shape and usual dtype of the output. InputError: inputs, pool and `out` do not fit together.

    out: None where a new one is to be made. Written for the host's time: a call of a layer that
    decodes looks at ten tensors here.
    """
    if not isinstance(state, Tensor) or state.layout is not STRIDED or state.is_neg():
        check_tensors(name, state=state)
    kind, operands_of = OPERATIONS[op]
    if not isinstance(inputs, kind):
        refuse(name, f"inputs must be an {kind.__module__}.{kind.__name__}; it is {shown(inputs)}")
    slot, result, tokens, constants = operands_of(name, inputs)
    rows = [x for x in (*tokens, *constants) if x[2]]
    if out is not None:
        rows.append(("out", out, result))
    cpu, dtype = state.is_cpu, rows[0][1].dtype
    index = state.get_device()
    for what, tensor, wanted in rows:
        if (
            not isinstance(tensor, Tensor)
            or tensor.shape != wanted
            or (not tensor.is_cpu if cpu else tensor.get_device() != index)
            or (tensor.dtype is not dtype and tensor.dtype not in NUMBERS)
            or tensor.layout is not STRIDED
            or tensor.is_neg()
        ):
            _refuse_tensor(name, what, tensor, wanted, state.device)
    if dtype not in NUMBERS or (index < 0 and not cpu):
        # a device without a number (meta) is told from others by its name
        for what, tensor, wanted in rows:
            if tensor.device != state.device or tensor.dtype not in NUMBERS:
                _refuse_tensor(name, what, tensor, wanted, state.device)
    found = state.shape[1:]
    if slot[0] == ANY and len(found) == len(slot):
        slot = (found[0], *slot[1:])
    if found != slot or state.dtype not in NUMBERS:
        _check_pool(name, state, slot)
    if not state.is_contiguous():
        check_spread(name, state, "slots of a pool, which is written,")
    if out is not None and not out.is_contiguous():
        check_spread(name, out)
    return result, dtype


def _check_pool(name: str, state: Tensor, slot: Shape) -> None:
    """InputError: other numbers, or slots of another shape, the first of it -1 for any extent."""
    found = state.shape[1:]
    if state.dtype not in NUMBERS or not state.dim():
        refuse(
            name,
            "the pool of states must be [slots, ...] of a float dtype, as state_shapes gives it; "
            f"it is {list(state.shape)} {state.dtype}",
        )
    if found != slot:
        wanted = ", ".join("any" if extent == ANY else str(extent) for extent in slot)
        refuse(name, f"a slot of the pool must be [{wanted}] for these inputs; it is {list(found)}")


def check_dense_out(name: str, out: Tensor) -> None:
    """InputError: a result with gaps in its last dimension, in which Triton's kernels have none,
    or one without memory while nothing is being compiled."""
    if out.is_meta:
        from attnctl.kernels.triton.device_checks import check_memory

        check_memory(name)
    if out.stride(-1) != 1:
        refuse(name, f"out's last dimension must be dense; its stride is {out.stride(-1)}")


def _refuse_tensor(
    name: str, what: str, tensor: Any, wanted: Shape, device: torch.device
) -> NoReturn:
    check_tensors(name, **{what: tensor})
    if tensor.device != device:
        refuse(
            name,
            f"all tensors of a call must lie on one device; {what} is on {tensor.device}, the pool "
            f"of states on {device}",
        )
    refuse(
        name,
        f"{what} must be {list(wanted)} of a float dtype for these inputs; "
        f"it is {list(tensor.shape)} {tensor.dtype}",
    )


def refuse_count(name: str, what: str, value: Any) -> None:
    """InputError: no number of things from 0 on."""
    if type(value) is int and value >= 0:
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        refuse(name, f"{what} must be an integer from 0 on; it is {shown(value)}")
