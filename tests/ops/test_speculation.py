"""Verification of drafts: a rejected token leaves no trace in the recurrent or conv state."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnctl.ops.states import take
from tests.ops.state_batches import NAN, OPS, Op, feed, generator_of, make_conv, packed

DRAFTS = 3
RECURRENT = {name: op for name, op in OPS.items() if not name.startswith("short_conv")}
CONV = Op(make_conv, OPS["short_conv"].run, (3 + DRAFTS, 5))


def lay(pool: torch.Tensor, name: str, slots: list[int], start: torch.Tensor) -> None:
    """Puts a sequence's state where an ordinary step would have left it."""
    if name == "short_conv":
        pool[slots[0], : start.shape[0]] = start
    else:
        pool[slots[0]] = start


def start_of(name: str) -> torch.Tensor:
    shape = OPS[name].state
    return torch.randn(shape, generator=generator_of(11), dtype=torch.float64)


def speculative(name: str) -> tuple[Op, list[list[int]]]:
    """The operation with room for drafts, and the slots of two sequences."""
    if name == "short_conv":
        return CONV, [[2], [0]]
    return OPS[name], [[5, 1, 7, 3], [0, 8, 2, 6]]


def step(op: Op, inputs: Any, pool: torch.Tensor, slots: Any, lengths: list[int], **extra: Any):
    meta = packed(lengths, slots, [True] * len(lengths), num_spec=DRAFTS, **extra)
    return op.run(inputs, pool, meta)


@pytest.mark.parametrize("accepted", [0, 1, DRAFTS])
@pytest.mark.parametrize("name", [*RECURRENT, "short_conv"])
def test_rollback_equals_feeding_only_what_was_accepted(name: str, accepted: int) -> None:
    """Three drafts verified, some accepted, then one ordinary step: as if the rest never was."""
    op, slots = speculative(name)
    inputs = op.make(DRAFTS + 2, generator_of(12))
    pool = torch.full((9, *op.state), NAN, dtype=torch.float64)
    start = start_of(name)
    lay(pool, name, slots[0], start)
    verify = take(inputs, slice(0, DRAFTS + 1))
    out = step(op, verify, pool, slots[:1], [DRAFTS + 1], speculative=torch.tensor([True]))
    bonus = take(inputs, slice(DRAFTS + 1, DRAFTS + 2))
    count = torch.tensor([1 + accepted], dtype=torch.int32)
    last = step(op, bonus, pool, slots[:1], [1], num_accepted=count)

    kept = take(inputs, torch.tensor([*range(1 + accepted), DRAFTS + 1]))
    rows, state = feed(OPS[name], kept, [1] * (accepted + 2), start)
    torch.testing.assert_close(out[: accepted + 1], rows[:-1])
    torch.testing.assert_close(last, rows[-1:])
    left = pool[slots[0][0]]
    torch.testing.assert_close(left[: state.shape[0]] if name == "short_conv" else left, state)


@pytest.mark.parametrize("name", [*RECURRENT, "short_conv"])
def test_verification_after_verification(name: str) -> None:
    """Two rows that draft 3 and 1, accept 1 and 0, then draft 0 and 2: as if fed alone."""
    op, slots = speculative(name)
    first, second = op.make(6, generator_of(13)), op.make(4, generator_of(14))
    pool = torch.full((9, *op.state), NAN, dtype=torch.float64)
    start = start_of(name)
    for row in slots:
        lay(pool, name, row, start)
    both = torch.tensor([True, True])
    step(op, first, pool, slots, [4, 2], speculative=both)
    count = torch.tensor([2, 1], dtype=torch.int32)
    out = step(op, second, pool, slots, [1, 3], speculative=both, num_accepted=count)

    for row, (before, after) in enumerate((((0, 1), (0,)), ((4,), (1, 2, 3)))):
        _, state = feed(OPS[name], take(first, torch.tensor(before)), [len(before)], start)
        alone = take(second, torch.tensor(after))
        rows, _ = feed(OPS[name], alone, [len(after)], state)
        torch.testing.assert_close(out[list(after)], rows)
        if name != "short_conv":
            for column, token in enumerate(after):
                _, state = feed(OPS[name], take(second, torch.tensor([token])), [1], state)
                torch.testing.assert_close(pool[slots[row][column]], state)


@pytest.mark.parametrize("name", [*RECURRENT, "short_conv"])
def test_speculative_and_ordinary_rows_share_a_batch(name: str) -> None:
    """A row under verification beside a prefill: the prefill keeps its last state alone."""
    op, slots = speculative(name)
    inputs = op.make(9, generator_of(15))
    pool = torch.full((9, *op.state), NAN, dtype=torch.float64)
    start = start_of(name)
    for row in slots:
        lay(pool, name, row, start)
    out = step(op, inputs, pool, slots, [4, 5], speculative=torch.tensor([True, False]))
    rows, state = feed(OPS[name], take(inputs, slice(4, 9)), [5], start)
    torch.testing.assert_close(out[4:], rows)
    left = pool[slots[1][0]]
    torch.testing.assert_close(left[: state.shape[0]] if name == "short_conv" else left, state)
    if name != "short_conv":
        assert pool[slots[1][1:]].isnan().all()


def test_a_column_without_a_slot_is_not_written() -> None:
    """Drafts beyond the row's slots are computed and their states dropped."""
    op = OPS["gdn"]
    inputs = op.make(3, generator_of(16))
    pool = torch.zeros(4, *op.state, dtype=torch.float64)
    meta = packed([3], [[1, -1, 2]], [True], num_spec=2, speculative=torch.tensor([True]))
    out = op.run(inputs, pool, meta)
    rows, state = feed(op, inputs, [3], torch.zeros(op.state, dtype=torch.float64))
    torch.testing.assert_close(out, rows)
    torch.testing.assert_close(pool[2], state)
    assert not pool[[0, 3]].any()
