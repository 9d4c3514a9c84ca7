"""Who owns which block of a paged cache, and which slot of a state pool. No torch: only numbers.

Blocks are shared by forks and copied when one owner writes; slots are written at every step, so a
fork copies its slot at once. Freed numbers are given out again last in, first out: what was touched
last is warm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class AllocationError(RuntimeError):
    """A call that names a block or slot which its caller does not own, or makes no sense."""


class ExhaustedError(AllocationError):
    """The pool has not enough left; nothing was taken."""


class _Pool:
    """Numbers 0 to size - 1, each free or owned at least once."""

    def __init__(self, size: int, what: str) -> None:
        if size < 0:
            raise AllocationError(f"a pool of {size} {what}s; the size must not be negative")
        self._what = what
        self._size = size
        self._owners = [0] * size
        self._free = list(range(size - 1, -1, -1))

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def size(self) -> int:
        return self._size

    def owners(self, number: int) -> int:
        """How many hold it; 0: it is free."""
        return self._owners[number] if 0 <= number < self._size else 0

    def _take(self, count: int) -> tuple[int, ...]:
        if count < 0:
            raise AllocationError(
                f"{count} {self._what}s asked for; the count must not be negative"
            )
        if count > len(self._free):
            raise ExhaustedError(
                f"{count} {self._what}s asked for, {len(self._free)} of {self._size} are free"
            )
        taken = tuple(self._free.pop() for _ in range(count))
        for number in taken:
            self._owners[number] = 1
        return taken

    def _check_owned(self, numbers: tuple[int, ...]) -> None:
        """AllocationError where one is named more often than it is owned; nothing is done yet."""
        for number, count in Counter(numbers).items():
            if count > self.owners(number):
                raise AllocationError(
                    f"{self._what} {number} is released {count} times "
                    f"and owned {self.owners(number)} times"
                )

    def _release(self, numbers: tuple[int, ...]) -> None:
        self._check_owned(numbers)
        for number in numbers:
            self._owners[number] -= 1
            if not self._owners[number]:
                self._free.append(number)


class BlockAllocator(_Pool):
    """Blocks of a paged cache, N in all. Every call either does all that it says or raises."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks, "block")

    def allocate(self, count: int = 1) -> tuple[int, ...]:
        """New blocks, owned once each. ExhaustedError: too few are free."""
        return self._take(count)

    def free(self, blocks: Iterable[int]) -> None:
        """Gives up one ownership of each. AllocationError: one is owned less often than named."""
        self._release(tuple(blocks))

    def fork(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """The same blocks, owned once more: a second sequence that begins as the first did."""
        shared = tuple(blocks)
        for block in shared:
            if not self.owners(block):
                raise AllocationError(f"block {block} is free and cannot be shared")
        for block in shared:
            self._owners[block] += 1
        return shared

    def writable(self, block: int) -> tuple[int, int | None]:
        """A block that this owner alone holds, and the block to copy into it first (None: none).

        A shared block is given up for a new one. ExhaustedError: no block is free for the copy.
        """
        owners = self.owners(block)
        if not owners:
            raise AllocationError(f"block {block} is free and cannot be written")
        if owners == 1:
            return block, None
        (copy,) = self._take(1)
        self._owners[block] -= 1
        return copy, block


class StateSlotAllocator(_Pool):
    """Slots of a state pool. A slot is zero when it is given out, whoever had it before.

    zero: called with the slots of each allocation before they are returned. copy: called with
    source and target slot for each slot of a fork.
    """

    def __init__(
        self,
        num_slots: int,
        zero: Callable[[tuple[int, ...]], None],
        copy: Callable[[int, int], None],
    ) -> None:
        super().__init__(num_slots, "slot")
        self._zero = zero
        self._copy = copy

    def allocate(self, count: int = 1) -> tuple[int, ...]:
        """Zeroed slots: one per sequence, 1 + K for K drafts. ExhaustedError: too few are free."""
        slots = self._take(count)
        if slots:
            self._zero(slots)
        return slots

    def free(self, slots: Iterable[int]) -> None:
        """Gives slots back. AllocationError: one is free already, or named twice."""
        self._release(tuple(slots))

    def fork(self, slots: Iterable[int]) -> tuple[int, ...]:
        """New slots that hold the same states. ExhaustedError: too few are free."""
        sources = tuple(slots)
        for slot in sources:
            if not self.owners(slot):
                raise AllocationError(f"slot {slot} is free and holds no state")
        targets = self._take(len(sources))
        for source, target in zip(sources, targets, strict=True):
            self._copy(source, target)
        return targets
