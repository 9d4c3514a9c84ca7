"""An engine's life in small: sequences come and go, in chunks, steps and verifications.

Each sequence's tokens are known beforehand, so that whatever the schedule was, its outputs must be
those of one pass over all of them. Slots are used again without being cleared, rejected drafts are
other tokens, padding and empty rows lie in between.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import torch
from torch import Tensor

from attnctl.ops.case import Case
from attnctl.ops.state_inputs import build, pool_shape
from attnctl.ops.state_trial import SPECIFICATIONS
from attnctl.ops.states import take
from attnctl.runtime import StateMetadata

Forward = Callable[[Any, Tensor, StateMetadata, Tensor], object]

NAN = float("nan")


class Sequence:
    """Tokens first to last - 1 of the drawn ones, of which `done` are computed."""

    def __init__(self, first: int, last: int, slots: list[int]) -> None:
        self.first, self.last, self.slots = first, last, slots
        self.done = 0
        self.accepted = 1

    @property
    def left(self) -> int:
        return self.last - self.first - self.done


class Row(msgspec.Struct, frozen=True):
    """One row of a batch. tokens: of the drawn ones; counted: how many of them stay."""

    sequence: Sequence | None
    tokens: list[int]
    counted: int
    verified: bool = False


class Schedule:
    """Sequences of these lengths through `forward`, drafts K at most, as `seed` has it."""

    def __init__(self, case: Case, lengths: list[int], seed: int) -> None:
        self.random = Random(seed)
        self.drafts = case.count("drafts")
        # one row of the case: all sequences' tokens, then those that rejected drafts are taken from
        junk = 64
        alone = {**case.params, "queries": str(sum(lengths) + junk), "drafts": 0, "padding": 0}
        self.inputs = build(msgspec.structs.replace(case, params=alone)).inputs
        self.junk = range(sum(lengths), sum(lengths) + junk)
        self.lengths, self.op = lengths, case.op
        self.columns = 1 if case.op == "short_conv" else 1 + self.drafts
        alive = 3
        self.shape = pool_shape(case)
        state_dtype = getattr(torch, str(case["state_dtype"]))
        self.pool = torch.full((alive * self.columns + 2, *self.shape), NAN, dtype=state_dtype)
        self.free = list(range(self.pool.shape[0]))
        self.alive, self.ended = alive, 0
        self.waiting: list[tuple[int, int]] = []
        begin = 0
        for length in lengths:
            self.waiting.append((begin, begin + length))
            begin += length
        self.running: list[Sequence] = []
        probe = getattr(self.inputs, "v", getattr(self.inputs, "x", None))
        assert probe is not None
        self.out = torch.full((begin, *probe.shape[1:]), NAN, dtype=probe.dtype)

    def run(self, forward: Forward) -> None:
        """Until every sequence has ended."""
        while self.waiting or self.running:
            self._admit()
            self._step(forward)
            for one in [one for one in self.running if one.left == 0]:
                self.running.remove(one)
                self.free += one.slots
                self.ended += 1

    def wanted(self) -> Tensor:
        """Every sequence's outputs in one pass, in float64."""
        exact = torch.zeros(self.out.shape, dtype=torch.float64)
        begin = 0
        for length in self.lengths:
            columns = torch.zeros(1, *self.shape, dtype=torch.float64)
            meta = StateMetadata(
                query_start_loc=torch.tensor([0, length], dtype=torch.int32),
                state_indices=torch.zeros(1, 1 + self.drafts, dtype=torch.int32),
                has_initial_state=torch.tensor([False]),
                max_query_len=length,
                num_spec=self.drafts,
            )
            tokens = slice(begin, begin + length)
            exact[tokens] = SPECIFICATIONS[self.op](take(self.inputs, tokens), columns, meta)
            begin += length
        return exact

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.alive:
            first, last = self.waiting.pop(0)
            self.random.shuffle(self.free)
            slots = [self.free.pop() for _ in range(self.columns)]
            self.running.append(Sequence(first, last, slots))

    def _step(self, forward: Forward) -> None:
        rows = [self._row(one) for one in self.running if self.random.random() < 0.8]
        for _ in range(self.random.choice((0, 0, 1, 2))):
            count = self.random.choice((0, 1, 3))
            rows.append(Row(None, [self.random.choice(self.junk) for _ in range(count)], 0))
        if not rows:
            return
        self.random.shuffle(rows)
        before = self.pool.clone()
        tokens = torch.tensor([token for row in rows for token in row.tokens], dtype=torch.long)
        inputs = take(self.inputs, tokens)
        out = torch.full((tokens.shape[0], *self.out.shape[1:]), NAN, dtype=self.out.dtype)
        forward(inputs, self.pool, self._metadata(rows), out)
        self._check_strangers(rows, before)
        begin = 0
        for row in rows:
            found = out[begin : begin + len(row.tokens)]
            begin += len(row.tokens)
            one = row.sequence
            if one is None:
                assert found.isnan().all(), "tokens of padding were written"
            elif row.tokens:
                at = one.first + one.done
                self.out[at : at + row.counted] = found[: row.counted]
                one.done += row.counted
                one.accepted = row.counted if row.verified else 1

    def _row(self, one: Sequence) -> Row:
        at = one.first + one.done
        if one.done and self.random.random() < 0.1:
            return Row(one, [], 0)
        if self.drafts and one.done and self.random.random() < 0.6:
            drafted = self.random.randint(0, self.drafts)
            right = self.random.randint(0, min(drafted, one.left - 1))
            wrong = [self.random.choice(self.junk) for _ in range(drafted - right)]
            return Row(one, [*range(at, at + 1 + right), *wrong], 1 + right, verified=True)
        count = self.random.choice((1, 1, 2, 3, 31, 32, 33, 63, 64, 65, 130))
        count = min(count, one.left)
        return Row(one, list(range(at, at + count)), count)

    def _metadata(self, rows: list[Row]) -> StateMetadata:
        counts = [len(row.tokens) for row in rows]
        width = 1 + self.drafts
        slots, accepted, known = [], [], []
        for row in rows:
            one = row.sequence
            own = [-1] * width if one is None else (one.slots * width)[:width]
            slots.append(own)
            accepted.append(1 if one is None else one.accepted)
            known.append(self.random.random() < 0.5 if one is None else one.done > 0)
        spec = self.drafts > 0
        loose = self.random.choice((0, 0, 5))
        return StateMetadata(
            query_start_loc=torch.tensor([0, *counts]).cumsum(0).to(torch.int32),
            state_indices=torch.tensor(slots, dtype=torch.int32),
            has_initial_state=torch.tensor(known),
            max_query_len=max(counts) + loose,
            num_accepted=torch.tensor(accepted, dtype=torch.int32) if spec else None,
            speculative=torch.tensor([row.verified for row in rows]) if spec else None,
            num_spec=self.drafts,
        )

    def _check_strangers(self, rows: list[Row], before: Tensor) -> None:
        """Slots of rows that are not in the batch keep every bit, NaN included."""
        owned = {slot for row in rows if row.sequence for slot in row.sequence.slots if row.tokens}
        others = [slot for slot in range(self.pool.shape[0]) if slot not in owned]
        same = (self.pool[others] == before[others]) | self.pool[others].isnan()
        assert bool(same.all()), "a slot was written that no row of the batch has"
        assert torch.equal(self.pool[others].isnan(), before[others].isnan())
