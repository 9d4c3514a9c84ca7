"""What every state-space operation keeps, whatever its mathematics: splitting, batching, slots."""

from __future__ import annotations

import pytest
import torch

from attnctl.ops.states import take
from tests.ops.state_batches import CHUNKED, NAN, OPS, Op, feed, generator_of, packed

LENGTHS = (1, 63, 64, 65, 127, 500)

every_op = pytest.mark.parametrize("op", OPS.values(), ids=list(OPS))


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


@every_op
def test_split_anywhere_is_the_whole(op: Op) -> None:
    """Seven tokens in two pieces, at each of the eight places, give the same outputs and state."""
    inputs = op.make(7, generator_of(1))
    whole = feed(op, inputs, [7])
    for cut in range(8):
        for found, wanted in zip(feed(op, inputs, [cut, 7 - cut]), whole, strict=True):
            close(found, wanted)


@every_op
def test_step_by_step_is_the_whole(op: Op) -> None:
    """Single tokens with a carried state, from a state that is there at the start."""
    inputs = op.make(9, generator_of(2))
    start = torch.randn(op.state, generator=generator_of(3), dtype=torch.float64)
    whole = feed(op, inputs, [9], start)
    for found, wanted in zip(feed(op, inputs, [1] * 9, start), whole, strict=True):
        close(found, wanted)
    fresh = feed(op, inputs, [9])
    assert not torch.allclose(fresh[0], whole[0]), "the initial state made no difference"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", OPS)
def test_halves_are_the_whole_at_every_length(name: str, length: int) -> None:
    """Lengths around a chunk of 64, cut in the middle of nothing in particular."""
    op = OPS[name]
    inputs = op.make(length, generator_of(length))
    whole = feed(op, inputs, [length])
    cut = length * 3 // 7
    for found, wanted in zip(feed(op, inputs, [cut, length - cut]), whole, strict=True):
        close(found, wanted)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", CHUNKED)
def test_chunked_is_recurrent(name: str, length: int) -> None:
    """The form that takes 64 tokens at once agrees, with a tail that fills no chunk."""
    op = OPS[name]
    inputs = op.make(length, generator_of(length + 1))
    start = torch.randn(op.state, generator=generator_of(4), dtype=torch.float64)
    recurrent = feed(op, inputs, [length], start)
    for found, wanted in zip(feed(op, inputs, [length], start, chunk=64), recurrent, strict=True):
        close(found, wanted)


@every_op
def test_a_batch_is_each_alone(op: Op) -> None:
    """Shuffled slots, an empty row, fresh rows in poisoned slots: as if each ran by itself."""
    lengths, slots = [3, 0, 1, 6, 1], [4, 2, 0, 6, 1]
    initial = [True, True, False, False, True]
    inputs = op.make(sum(lengths), generator_of(5))
    pool = torch.full((8, *op.state), NAN, dtype=torch.float64)
    for slot, known in zip(slots, initial, strict=True):
        if known:
            pool[slot] = torch.randn(op.state, generator=generator_of(slot), dtype=torch.float64)
    before = pool.clone()
    meta = packed(lengths, [[slot] for slot in slots], initial)
    out = op.run(inputs, pool, meta)
    begin = 0
    for length, slot, known in zip(lengths, slots, initial, strict=True):
        if length:
            mine = take(inputs, slice(begin, begin + length))
            rows, state = feed(op, mine, [length], before[slot] if known else None)
            close(out[begin : begin + length], rows)
            close(pool[slot], state)
        begin += length
    for slot in (2, 3, 5, 7):
        assert torch.equal(pool[slot].nan_to_num(9.0), before[slot].nan_to_num(9.0))


@every_op
def test_where_the_slots_lie_changes_nothing(op: Op) -> None:
    """The same batch over two slot maps."""
    inputs = op.make(7, generator_of(6))
    results = []
    for slots in ([[0], [1], [2]], [[5], [0], [3]]):
        pool = torch.full((6, *op.state), NAN, dtype=torch.float64)
        out = op.run(inputs, pool, packed([2, 4, 1], slots, [False] * 3))
        results.append((out, pool[[row[0] for row in slots]]))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@every_op
def test_padding_is_inert(op: Op) -> None:
    """Rows of slot -1 and tokens past the last row: nothing read, nothing written."""
    inputs = op.make(6, generator_of(7))
    for name in inputs.per_token:
        if getattr(inputs, name) is not None:
            getattr(inputs, name)[3:] = NAN
    pool = torch.full((3, *op.state), NAN, dtype=torch.float64)
    out = torch.full((6, *op.run(inputs, pool.clone(), packed([], [[0]], [])).shape[1:]), 7.0)
    out = out.double()
    op.run(inputs, pool, packed([3, 1, 1], [[1], [-1], [-1]], [False, True, False]), out=out)
    rows, state = feed(op, take(inputs, slice(0, 3)), [3])
    close(out[:3], rows)
    assert (out[3:] == 7.0).all()
    close(pool[1], state)
    assert pool[[0, 2]].isnan().all()


@every_op
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_first_chunk_does_not_read_the_slots_former_owner(op: Op, length: int) -> None:
    """Even one token long, a first chunk starts from zero in a slot full of someone's state."""
    inputs = op.make(length, generator_of(8))
    clean = torch.zeros(1, *op.state, dtype=torch.float64)
    dirty = torch.full((1, *op.state), 2.0, dtype=torch.float64)
    meta = packed([length], [[0]], [False])
    assert torch.equal(op.run(inputs, dirty, meta), op.run(inputs, clean, meta))
    assert torch.equal(dirty, clean)


@every_op
def test_half_precision_pools_round_once_per_call(op: Op) -> None:
    """A bfloat16 pool holds the rounded state; inside a call the state stays exact."""
    inputs = op.make(9, generator_of(9))
    pool = torch.zeros(1, *op.state, dtype=torch.bfloat16)
    out = op.run(inputs, pool, packed([9], [[0]], [False]))
    rows, state = feed(op, inputs, [9])
    close(out, rows)
    torch.testing.assert_close(pool[0], state.to(torch.bfloat16), rtol=0.004, atol=0)
