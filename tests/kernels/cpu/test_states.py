"""What both ways of advancing states on a processor keep: splitting, batching, slots, rollback."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from attnctl.ops.states import take
from tests.kernels.cpu.states import FORMS, SIZES, WHOLE, Form, feed, make, op_of, run
from tests.ops.state_batches import NAN, generator_of, packed

DRAFTS = 3
# token by token in every form, so that a cut changes not a bit of the result
EXACT = ("gdn", "mamba1", "short_conv")

every_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def same(found: Iterable[Tensor], wanted: Iterable[Tensor], exact: bool = False) -> None:
    for one, other in zip(found, wanted, strict=True):
        if exact:
            assert torch.equal(one, other)
        else:
            torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5)


def start_of(state: tuple[int, ...]) -> Tensor:
    return torch.randn(state, generator=generator_of(3))


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 500, 1000])
@pytest.mark.parametrize("size", WHOLE)
def test_halves_are_the_whole_at_every_length(size: str, length: int) -> None:
    """Lengths around a chunk, from a state, cut in the middle of nothing in particular."""
    form, cut = FORMS["compiled"], length * 3 // 7
    inputs, state = make(size, length, length)
    whole = feed(form, size, inputs, state, [length], start_of(state))
    halves = feed(form, size, inputs, state, [cut, length - cut], start_of(state))
    same(halves, whole, exact=size in EXACT)
    fresh, _ = feed(form, size, inputs, state, [length])
    assert not torch.allclose(fresh, whole[0]), "the initial state made no difference"


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127])
@pytest.mark.parametrize("size", SIZES)
def test_step_by_step_is_the_whole_and_both_forms_agree(size: str, length: int) -> None:
    """Single tokens against all at once, and the compiled kernels against torch."""
    inputs, state = make(size, length, length)
    whole = feed(FORMS["compiled"], size, inputs, state, [length], start_of(state))
    steps = feed(FORMS["compiled"], size, inputs, state, [1] * length, start_of(state))
    same(steps, whole, exact=op_of(size) in EXACT)
    same(feed(FORMS["eager"], size, inputs, state, [length], start_of(state)), whole)


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_split_anywhere_is_the_whole(form: Form, size: str) -> None:
    """Thirty tokens, a chunk and a tail, in two pieces; both ends and around them."""
    inputs, state = make(size, 30, 1)
    whole = feed(form, size, inputs, state, [30])
    for cut in (0, 1, 2, 7, 11, 12, 13, 23, 24, 25, 29, 30):
        same(feed(form, size, inputs, state, [cut, 30 - cut]), whole)


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_a_batch_is_each_alone(form: Form, size: str) -> None:
    """Shuffled slots, an empty row, fresh rows in poisoned slots: as if each ran by itself."""
    lengths, slots = [3, 0, 1, 40, 1, 13], [4, 2, 0, 6, 1, 7]
    initial = [True, True, False, False, True, True]
    inputs, state = make(size, sum(lengths), 5)
    pool = torch.full((9, *state), NAN)
    for slot, known in zip(slots, initial, strict=True):
        if known:
            pool[slot] = torch.randn(state, generator=generator_of(slot))
    before = pool.clone()
    out = run(form, size, inputs, pool, packed(lengths, [[slot] for slot in slots], initial))
    begin = 0
    for length, slot, known in zip(lengths, slots, initial, strict=True):
        if length:
            mine = take(inputs, slice(begin, begin + length))
            first = before[slot] if known else None
            alone = feed(form, size, mine, state, [length], first)
            # torch's products differ with the number of rows; ours do not
            same((out[begin : begin + length], pool[slot]), alone, exact=form is FORMS["compiled"])
        begin += length
    for slot in (2, 3, 5, 8):
        assert torch.equal(pool[slot].nan_to_num(9.0), before[slot].nan_to_num(9.0))


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_padding_is_inert(form: Form, size: str) -> None:
    """Rows of slot -1, whose tokens are NaN: nothing read, nothing written."""
    inputs, state = make(size, 20, 7)
    alone = feed(form, size, take(inputs, slice(0, 15)), state, [15])
    for name in inputs.per_token:
        if getattr(inputs, name) is not None:
            getattr(inputs, name)[15:] = NAN
    pool = torch.full((3, *state), NAN)
    meta = packed([15, 1, 4], [[1], [-1], [-1]], [False, True, False])
    out = run(form, size, inputs, pool, meta)
    same((out[:15], pool[1]), alone)
    assert out[15:].isnan().all()
    assert pool[[0, 2]].isnan().all()


@every_form
@pytest.mark.parametrize("accepted", [0, 1, DRAFTS])
@pytest.mark.parametrize("size", WHOLE)
def test_rollback_equals_feeding_only_what_was_accepted(
    form: Form, size: str, accepted: int
) -> None:
    """Three drafts verified, some accepted, then one ordinary step: as if the rest never was."""
    conv = op_of(size) == "short_conv"
    inputs, state = make(size, DRAFTS + 2, 12)
    slots, start = ([[2]] if conv else [[5, 1, 7, 3]]), start_of(state)
    room = (state[0] + DRAFTS, *state[1:]) if conv else state
    pool = torch.full((9, *room), NAN)
    if conv:
        pool[2, : state[0]] = start
    else:
        pool[5] = start
    drafted = take(inputs, slice(0, DRAFTS + 1))
    meta = packed([DRAFTS + 1], slots, [True], num_spec=DRAFTS, speculative=torch.tensor([True]))
    out = run(form, size, drafted, pool, meta)
    count = torch.tensor([1 + accepted], dtype=torch.int32)
    meta = packed([1], slots, [True], num_spec=DRAFTS, num_accepted=count)
    last = run(form, size, take(inputs, slice(DRAFTS + 1, DRAFTS + 2)), pool, meta)

    kept = take(inputs, torch.tensor([*range(1 + accepted), DRAFTS + 1]))
    rows, left = feed(form, size, kept, state, [1] * (accepted + 2), start)
    found = pool[slots[0][0]]
    exact = form is FORMS["compiled"]
    same((out[: accepted + 1], last), (rows[:-1], rows[-1:]), exact)
    same([found[: state[0]] if conv else found], [left], exact)


@every_form
@pytest.mark.parametrize("size", WHOLE)
def test_a_first_token_does_not_read_the_slots_former_owner(form: Form, size: str) -> None:
    """Even one token long, a first chunk starts from zero in a slot full of someone's state."""
    inputs, state = make(size, 1, 8)
    clean, dirty = torch.zeros(1, *state), torch.full((1, *state), 2.0)
    meta = packed([1], [[0]], [False])
    assert torch.equal(run(form, size, inputs, dirty, meta), run(form, size, inputs, clean, meta))
    assert torch.equal(dirty, clean)


@pytest.mark.parametrize("size", WHOLE)
def test_the_number_of_threads_changes_nothing(size: str) -> None:
    """One sequence's heads, rows or channels are shared out among threads, bit for bit."""
    inputs, state = make(size, 200, 9)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(feed(FORMS["compiled"], size, inputs, state, [200], start_of(state)))
    finally:
        torch.set_num_threads(before)
    same(results[0], results[1], exact=True)
