"""Blocks and slots under any sequence of calls, beside a plain model of who owns what."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from attnctl.caches.allocators import (
    AllocationError,
    BlockAllocator,
    ExhaustedError,
    StateSlotAllocator,
)

SIZE = 9
counts = st.integers(0, 4)
picks = st.integers(0, 1000)


class Blocks(RuleBasedStateMachine):
    """Sequences write tagged content to their blocks; none may see another's write."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockAllocator(SIZE)
        self.memory: list[object] = [None] * SIZE
        self.sequences: list[list[int]] = []
        self.expected: list[list[object]] = []
        self.tag = 0

    def pick(self, number: int) -> int:
        return number % len(self.sequences)

    @rule(count=counts)
    def start(self, count: int) -> None:
        if count > self.blocks.free_count:
            before = self.blocks.free_count
            with pytest.raises(ExhaustedError, match=f"{count} blocks asked for, {before} of"):
                self.blocks.allocate(count)
            assert self.blocks.free_count == before
            return
        taken = list(self.blocks.allocate(count))
        self.sequences.append(taken)
        self.expected.append([self.memory[block] for block in taken])

    @precondition(lambda self: self.sequences)
    @rule(number=picks)
    def fork(self, number: int) -> None:
        at = self.pick(number)
        self.sequences.append(list(self.blocks.fork(self.sequences[at])))
        self.expected.append(list(self.expected[at]))

    @precondition(lambda self: any(self.sequences))
    @rule(number=picks, place=picks)
    def write(self, number: int, place: int) -> None:
        at = self.pick(number)
        mine = self.sequences[at]
        if not mine:
            return
        place %= len(mine)
        shared = sum(block == mine[place] for row in self.sequences for block in row) > 1
        if shared and not self.blocks.free_count:
            with pytest.raises(ExhaustedError):
                self.blocks.writable(mine[place])
            return
        block, source = self.blocks.writable(mine[place])
        assert (source == mine[place]) if shared else (source is None and block == mine[place])
        if source is not None:
            self.memory[block] = self.memory[source]
        self.tag += 1
        mine[place] = block
        self.memory[block] = self.expected[at][place] = self.tag

    @precondition(lambda self: self.sequences)
    @rule(number=picks)
    def end(self, number: int) -> None:
        at = self.pick(number)
        self.blocks.free(self.sequences.pop(at))
        self.expected.pop(at)

    @rule(block=st.integers(-2, SIZE + 1))
    def free_what_nobody_has(self, block: int) -> None:
        if not self.blocks.owners(block):
            for mistake in (self.blocks.fork, self.blocks.free):
                with pytest.raises(AllocationError):
                    mistake([block])
            with pytest.raises(AllocationError):
                self.blocks.writable(block)

    @invariant()
    def everyone_reads_what_they_wrote(self) -> None:
        for mine, wanted in zip(self.sequences, self.expected, strict=True):
            assert [self.memory[block] for block in mine] == wanted

    @invariant()
    def every_block_is_counted(self) -> None:
        held = [block for row in self.sequences for block in row]
        assert all(self.blocks.owners(block) == held.count(block) for block in range(SIZE))
        assert self.blocks.free_count == SIZE - len(set(held))


class Slots(RuleBasedStateMachine):
    """A pool of numbers as states; each step adds to every live one."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = [float("nan")] * SIZE
        self.slots = StateSlotAllocator(SIZE, self.zero, self.copy)
        self.live: dict[int, float] = {}

    def zero(self, slots: tuple[int, ...]) -> None:
        for slot in slots:
            self.memory[slot] = 0.0

    def copy(self, source: int, target: int) -> None:
        self.memory[target] = self.memory[source]

    @rule(count=counts)
    def allocate(self, count: int) -> None:
        if count > self.slots.free_count:
            with pytest.raises(ExhaustedError):
                self.slots.allocate(count)
            return
        for slot in self.slots.allocate(count):
            assert slot not in self.live
            self.live[slot] = 0.0

    @precondition(lambda self: self.live)
    @rule(number=picks, amount=st.integers(1, 9))
    def step(self, number: int, amount: int) -> None:
        slot = sorted(self.live)[number % len(self.live)]
        self.memory[slot] += amount
        self.live[slot] += amount

    @precondition(lambda self: self.live)
    @rule(number=picks)
    def fork(self, number: int) -> None:
        slot = sorted(self.live)[number % len(self.live)]
        if not self.slots.free_count:
            with pytest.raises(ExhaustedError):
                self.slots.fork([slot])
            return
        (copy,) = self.slots.fork([slot])
        assert copy not in self.live
        self.live[copy] = self.live[slot]

    @precondition(lambda self: self.live)
    @rule(number=picks)
    def free(self, number: int) -> None:
        slot = sorted(self.live)[number % len(self.live)]
        self.slots.free([slot])
        del self.live[slot]
        self.memory[slot] = 99.0
        with pytest.raises(AllocationError, match=f"slot {slot} is released 1 times"):
            self.slots.free([slot])
        with pytest.raises(AllocationError, match="holds no state"):
            self.slots.fork([slot])

    @invariant()
    def every_state_is_its_owners(self) -> None:
        assert {slot: self.memory[slot] for slot in self.live} == self.live
        assert self.slots.free_count == SIZE - len(self.live)


TestBlocks = Blocks.TestCase
TestSlots = Slots.TestCase


def test_one_call_that_names_a_block_twice_frees_nothing() -> None:
    """A double free inside one call is refused before any block is released."""
    blocks = BlockAllocator(3)
    first, second = blocks.allocate(2)
    with pytest.raises(AllocationError, match=f"block {second} is released 2 times and owned 1"):
        blocks.free([first, second, second])
    assert blocks.free_count == 1
    assert blocks.owners(first) == 1


def test_a_fork_may_free_its_blocks_before_or_after_the_first() -> None:
    """The order in which two owners end does not matter; the last one frees."""
    blocks = BlockAllocator(2)
    mine = blocks.allocate(2)
    theirs = blocks.fork(mine)
    blocks.free(mine)
    assert blocks.free_count == 0
    blocks.free(theirs)
    assert blocks.free_count == 2


def test_sizes_and_counts_below_zero_are_refused() -> None:
    """Neither a negative pool nor a negative request means anything."""
    with pytest.raises(AllocationError, match="must not be negative"):
        BlockAllocator(-1)
    with pytest.raises(AllocationError, match="must not be negative"):
        BlockAllocator(1).allocate(-1)
    assert BlockAllocator(4).size == 4
