"""Calls of state-space operations to be perturbed: batches built, and handed over as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.state_trial import SPECIFICATIONS
from attnctl.runtime import StateMetadata
from tests.kernels.cpu.states import make, op_of
from tests.kernels.perturbing import Call, Results
from tests.ops.state_batches import NAN

NAMES = {
    "gdn": "GDN_ATTN",
    "odd kda": "GDN_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "odd mamba2": "MAMBA2_ATTN",
    "linear": "LINEAR_ATTN",
    "odd short_conv": "SHORT_CONV_ATTN",
}
"""Sizes of tests.kernels.cpu.states by the backend that computes them."""

SLOTS, TOKENS, NUM_SPEC = 12, 6, 1


def _batch() -> dict[str, Any]:
    """A row under verification, one with a state, padding, and a first chunk."""
    return {
        "query_start_loc": torch.tensor([0, 2, 3, 4, 6], dtype=torch.int32),
        "state_indices": torch.tensor([[3, 5], [7, -1], [-1, -1], [9, 2]], dtype=torch.int32),
        "num_accepted": torch.tensor([2, 1, 1, 1], dtype=torch.int32),
        "speculative": torch.tensor([True, False, False, False]),
        "num_spec": NUM_SPEC,
        "max_query_len": 2,
    }


def _given(size: str) -> dict[str, Any]:
    inputs, slot = make(size, TOKENS, 1)
    if op_of(size) == "mamba1":
        # a step that decays without softplus, too
        steps = {"dt": inputs.dt.abs(), "dt_bias": inputs.dt_bias.abs()}
        inputs = msgspec.structs.replace(inputs, **steps)
    if op_of(size) == "short_conv":
        slot = (slot[0] + NUM_SPEC, *slot[1:])
    generator = torch.Generator().manual_seed(2)
    pool = torch.randn(SLOTS, *slot, generator=generator)
    first = getattr(inputs, inputs.per_token[0])
    shape = inputs.v.shape if hasattr(inputs, "v") else first.shape
    return {"inputs": inputs, "state": pool, "out": torch.full(tuple(shape), NAN)}


def _computed(known: Any) -> Any:
    return torch.tensor([4, 2, 0, 0], dtype=torch.int32) if known is None else known


def built(runtime: Any, size: str) -> Call:
    """The batch is what build_metadata makes of its tensors."""

    def arguments() -> dict[str, Any]:
        return _given(size) | _batch() | {"num_computed_tokens": _computed(None)}

    def run(given: dict[str, Any]) -> Results:
        own = {name: given.pop(name) for name in ("inputs", "state", "out")}
        metadata = runtime.build_metadata(**given)
        return _forward(runtime, **own, metadata=metadata)

    def exact(given: dict[str, Any]) -> Results:
        own = {name: given.pop(name) for name in ("inputs", "state", "out")}
        known = given.pop("num_computed_tokens") > 0
        if given["state_indices"].dim() == 1:
            given["state_indices"] = given["state_indices"][:, None]
        return _specified(size, **own, metadata=StateMetadata(**given, has_initial_state=known))

    return Call(arguments, run, exact)


def handed(runtime: Any, size: str) -> Call:
    """The batch is a StateMetadata of the program's own."""

    def arguments() -> dict[str, Any]:
        known = torch.tensor([True, True, False, False])
        return _given(size) | {"metadata": StateMetadata(**_batch(), has_initial_state=known)}

    def run(given: dict[str, Any]) -> Results:
        return _forward(runtime, **given)

    def exact(given: dict[str, Any]) -> Results:
        return _specified(size, **given)

    return Call(arguments, run, exact)


def repeated(runtime: Any, size: str) -> Call:
    """A further layer of a batch of which another has been computed."""
    call = handed(runtime, size)

    def run(given: dict[str, Any]) -> Results:
        runtime.forward(**_given(size), metadata=given["metadata"])
        return call.run(given)

    return call._replace(run=run)


def _forward(runtime: Any, inputs: Any, state: Tensor, out: Tensor, metadata: Any) -> Results:
    return runtime.forward(inputs, state, metadata, out), state


def _specified(size: str, inputs: Any, state: Any, out: Any, metadata: Any) -> Results:
    # num_spec, max_query_len: bounds that a batch keeps, and of no account to the specification
    lengths = metadata.query_start_loc.diff()
    if metadata.max_query_len < int(lengths.max()):
        raise ValueError("a bound below what it bounds")
    state = state.double()
    out = None if out is None else out.double()
    metadata = msgspec.structs.replace(metadata, num_spec=int(metadata.num_spec))
    found = SPECIFICATIONS[op_of(size)](inputs, state, metadata, out=out, dtype=torch.float64)
    return found, state


def split(runtime: Any) -> Call:
    """GDN_ATTN's batch as engines split it: a row under verification between others."""

    def arguments() -> dict[str, Any]:
        own = _batch()
        return _given("gdn") | {
            "query_start_loc": own["query_start_loc"],
            "seq_lens": torch.tensor([6, 3, 1, 2], dtype=torch.int32),
            "state_indices": own["state_indices"],
            "num_drafts": [1, -1, -1, -1],
            "num_accepted": own["num_accepted"],
            "num_spec": NUM_SPEC,
        }

    def run(given: dict[str, Any]) -> Results:
        own = {name: given.pop(name) for name in ("inputs", "state", "out")}
        return _forward(runtime, **own, metadata=runtime.build_split(**given))

    def exact(given: dict[str, Any]) -> Results:
        own = {name: given.pop(name) for name in ("inputs", "state", "out")}
        lengths = given["query_start_loc"].diff()
        drafts, num_spec = given["num_drafts"], given["num_spec"]
        spec = drafts is not None and num_spec and any(x >= 0 for x in drafts)
        metadata = StateMetadata(
            query_start_loc=given["query_start_loc"],
            state_indices=given["state_indices"],
            has_initial_state=given["seq_lens"] > lengths,
            max_query_len=TOKENS,
            num_accepted=torch.where(torch.tensor(drafts) >= 0, given["num_accepted"], 1)
            if spec
            else None,
            speculative=torch.tensor(drafts) >= 0 if spec else None,
            num_spec=num_spec,
        )
        return _specified("gdn", **own, metadata=metadata)

    return Call(arguments, run, exact)
