"""The trial of state-space backends is red for each planted fault, and green without one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from attnctl.exits import InputError
from attnctl.kernels.states.runtime import StateAttention
from attnctl.model.spec import State
from attnctl.ops.case import split_case
from attnctl.ops.catalog import OPERATIONS, all_cases, case_of, try_case
from attnctl.ops.state_cases import DEFAULTS, case, cases
from attnctl.ops.state_inputs import build
from attnctl.registry import load
from attnctl.runtime import StateMetadata, StateRuntime, open_backend

NAMES = {
    "gdn": "GDN_ATTN",
    "mamba1": "MAMBA1_ATTN",
    "mamba2": "MAMBA2_ATTN",
    "short_conv": "SHORT_CONV_ATTN",
    "linear": "LINEAR_ATTN",
}
SMALL: dict[str, dict[str, Any]] = {
    "gdn": {"head_k_dim": 16, "head_v_dim": 16},
    "mamba1": {"channels": 24, "state_size": 8},
    "mamba2": {"head_dim": 16, "state_size": 16},
    "short_conv": {"channels": 24},
    "linear": {"head_dim": 16},
}
VERIFY = {"queries": "4+2+1", "initial": "all", "drafts": 3, "accepted": "1+3+2"}

every_op = pytest.mark.parametrize("op", NAMES)


class Faulty:
    """A backend's runtime with its call bent: metadata changed before, pool and output after."""

    def __init__(self, sound: StateAttention) -> None:
        self.sound = sound
        self.build_metadata = sound.build_metadata

    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        return self.sound.forward(inputs, state, metadata, out)


class ReadsTheFormerOwner(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        known = torch.ones_like(metadata.has_initial_state)
        meta = msgspec.structs.replace(metadata, has_initial_state=known)
        return self.sound.forward(inputs, state, meta, out)


class ForgetsToWrite(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        return self.sound.forward(inputs, state.clone(), metadata, out)


class KeepsRejectedDrafts(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        meta = msgspec.structs.replace(metadata, num_accepted=None)
        return self.sound.forward(inputs, state, meta, out)


class KeepsOnlyTheLast(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        meta = msgspec.structs.replace(metadata, speculative=None)
        return self.sound.forward(inputs, state, meta, out)


class WritesPadding(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        self.sound.forward(inputs, state, metadata, out)
        padding = metadata.state_indices[:, 0] < 0
        state[metadata.state_indices[padding, 0].long()] = 0.0
        return out


class TouchesAFreeSlot(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        self.sound.forward(inputs, state, metadata, out)
        used = set(metadata.state_indices.flatten().tolist())
        state[next(slot for slot in range(state.shape[0]) if slot not in used)] = 1.0
        return out


class IsALittleOff(Faulty):
    def forward(self, inputs: Any, state: Tensor, metadata: StateMetadata, out: Tensor) -> Tensor:
        self.sound.forward(inputs, state, metadata, out)
        state *= 1.01
        return out


FAULTS: tuple[tuple[type[Faulty], dict[str, Any], str], ...] = (
    (ReadsTheFormerOwner, {"queries": "1+3", "initial": "fresh"}, "not written or not finite"),
    (ForgetsToWrite, {"queries": "2+1", "initial": "all"}, "state"),
    (KeepsRejectedDrafts, {**VERIFY, "accepted": "3"}, ""),
    (KeepsOnlyTheLast, {**VERIFY, "accepted": "1"}, ""),
    (WritesPadding, {"queries": "2+1", "initial": "all", "padding": 2}, "belongs to no sequence"),
    (TouchesAFreeSlot, {"queries": "2+1", "initial": "all"}, "belongs to no sequence"),
    (IsALittleOff, {"queries": "2+1", "initial": "all", "dtype": "float32"}, "state: error"),
)


@every_op
@pytest.mark.parametrize(("fault", "changes", "says"), FAULTS)
def test_each_fault_is_found(op: str, fault: type[Faulty], changes: Any, says: str) -> None:
    """A runtime with one fault is not passed, and the sentence says what is wrong."""
    one = case(op, **SMALL[op], **changes)
    found = try_case(fault(open_backend(NAMES[op])), one, "cpu")
    assert found.verdict in ("wrong", "unwritten"), found
    assert says in found.detail


@every_op
@pytest.mark.parametrize("changes", [changes for _, changes, _ in FAULTS])
def test_without_the_fault_the_same_cases_pass(op: str, changes: Any) -> None:
    """So that the cases above are red for the fault alone."""
    one = case(op, **SMALL[op], **changes)
    found = try_case(open_backend(NAMES[op]), one, "cpu")
    assert found.verdict == "pass", found.detail


@every_op
def test_a_batch_without_any_token_is_tried(op: str) -> None:
    """Strided inputs as well: there is nothing to lay apart."""
    for queries in ("", "0+0"):
        one = case(op, queries=queries, fused=True, **SMALL[op])
        assert try_case(open_backend(NAMES[op]), one, "cpu").verdict == "pass"


@every_op
def test_cases_paste_back_and_cover_what_they_must(op: str) -> None:
    """Every text gives the same case; lengths, first chunks, drafts and padding are among them."""
    every = cases(op)
    assert len({one.text for one in every}) == len(every)
    assert {str(one["queries"]) for one in every} >= {"1", "63", "64", "65", "127", "500", "1000"}
    assert any(one["padding"] for one in every)
    assert {one["drafts"] for one in every} == {0, 3}
    assert any(one["queries"] == "1+1+1" and one["initial"] == "fresh" for one in every)
    assert {one["state_dtype"] for one in every} >= {"float32", "bfloat16"}


def test_the_catalog_names_every_operation_with_cases() -> None:
    """All cases of all operations, each one found again by its text, which no other has."""
    every = all_cases()
    for op, operation in OPERATIONS.items():
        texts = [one.text for one in import_module(operation.cases).cases(op)]
        assert len(set(texts)) == len(texts), op
    assert {one.op for one in every} == set(OPERATIONS)
    for one in every:
        again = case_of(*split_case(one.text))
        assert (again.op, again.text) == (one.op, one.text)
        # 500 comes back as a number where the list has text: the same to its readers
        assert {k: str(v) for k, v in again.params.items()} == {
            k: str(v) for k, v in one.params.items()
        }
    with pytest.raises(InputError, match=r"no such operation\. There are paged, diffkv"):
        case_of("conv3d", {})
    with pytest.raises(InputError, match="no such parameter: haeds"):
        case_of("gdn", {"haeds": 3})


@every_op
def test_the_backend_is_a_state_runtime_and_says_so(op: str) -> None:
    """Name, is_ssm and protocol agree with the declaration."""
    runtime = open_backend(NAMES[op])
    declared = load().get(NAMES[op])
    assert declared is not None
    assert isinstance(runtime, StateRuntime)
    assert runtime.get_name() == NAMES[op]
    assert runtime.is_ssm() is declared.is_ssm is True
    assert set(DEFAULTS) == set(NAMES)


def test_state_shapes_are_those_of_the_cache_plan() -> None:
    """Qwen3-Next's GDN layer on two ranks with three drafts; another kind of layer is refused."""
    layer = State(
        type="gdn", conv_kernel=4, num_k_heads=16, num_v_heads=32, head_k_dim=128, head_v_dim=128
    )
    shapes = open_backend("GDN_ATTN").state_shapes(layer, tp=2, num_spec=3)
    assert shapes == (("conv", (6, 4096)), ("ssm", (16, 128, 128)))
    with pytest.raises(InputError, match="LINEAR_ATTN: it keeps states of linear and lightning"):
        open_backend("LINEAR_ATTN").state_shapes(layer)


def test_what_does_not_fit_is_refused_with_both_values() -> None:
    """Rows that disagree, too few columns for the drafts, a pool of another shape."""
    runtime = open_backend("MAMBA1_ATTN")
    starts, computed = torch.tensor([0, 1, 2]), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(InputError, match="state_indices has 1 rows and query_start_loc 2"):
        runtime.build_metadata(starts, torch.tensor([0]), computed, max_query_len=1)
    slots = torch.tensor([0, 1])
    with pytest.raises(InputError, match="3 drafts need 4 columns of state_indices; it has 1"):
        runtime.build_metadata(starts, slots, computed, max_query_len=1, num_spec=3)
    batch = build(case("mamba1", queries="1", channels=24, state_size=8))
    meta = runtime.build_metadata(
        batch.query_start_loc, batch.state_indices, batch.num_computed_tokens, max_query_len=1
    )
    with pytest.raises(InputError, match=r"pool must be \[24, 8\] .* it is \[8, 24\]"):
        runtime.forward(batch.inputs, batch.pool.mT, meta)


def test_a_first_chunk_of_one_token_is_known_by_what_was_computed() -> None:
    """No computed tokens means no initial state, whatever the row's length."""
    runtime = open_backend("GDN_ATTN")
    meta = runtime.build_metadata(
        torch.tensor([0, 1, 2]), torch.tensor([4, 2]), torch.tensor([0, 7]), max_query_len=1
    )
    assert meta.has_initial_state.tolist() == [False, True]
    assert meta.state_indices.tolist() == [[4], [2]]
