"""How long the sequences of a batch are, and where their tokens lie in pages."""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from attnctl.tune.settings import Work

PERIOD = 1_048_573
"""Random numbers that are drawn: a prime, so that no two pages hold the same ones."""

CHECKED_ROWS = 16


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Of each sequence. copies: batches with pages of their own, taken in turns.

    whole: every row is checked, else the last rows of the first and the last sequence. thin: all
    tokens lie in one page, so that a batch of any length takes next to no memory: to be compiled
    for, and neither judged nor timed.
    """

    queries: tuple[int, ...]
    contexts: tuple[int, ...]
    copies: int = 1
    whole: bool = False
    thin: bool = False

    @classmethod
    def of(cls, work: Work, copies: int) -> Lengths:
        """A workload point's: all sequences alike."""
        one = (work.query,) * work.batch, (work.context,) * work.batch
        return cls(queries=one[0], contexts=one[1], copies=copies)

    @property
    def tokens(self) -> int:
        return sum(self.queries)

    def checked(self) -> list[tuple[int, int]]:
        """Sequence and how many of its last query tokens are checked, in order."""
        if self.whole:
            return [(b, q) for b, q in enumerate(self.queries) if q]
        ends = sorted({0, len(self.queries) - 1})
        return [(b, min(self.queries[b], CHECKED_ROWS)) for b in ends]

    def checked_rows(self, starts: list[int]) -> Tensor:
        """The places of those tokens among all."""
        rows = [torch.arange(starts[b + 1] - n, starts[b + 1]) for b, n in self.checked()]
        return torch.cat(rows)


class Places(msgspec.Struct, frozen=True):
    """Where a copy's tokens are. slots: of the new tokens, [T] int64."""

    table: Tensor
    slots: Tensor
    starts: Tensor
    seq_lens: Tensor


def lay_out(lengths: Lengths, page: int, device: torch.device) -> tuple[list[Places], int]:
    """Every copy's places in one shuffled pool of pages, and the number of pages."""
    generator = torch.Generator().manual_seed(7)
    counts = [-(-length // page) for length in lengths.contexts]
    total = sum(counts)
    # as wide as a multiple of 16, as engines have it: Triton compiles other kernels elsewhere
    most = -(-max([1, *counts]) // 16) * 16
    order = torch.randperm(0 if lengths.thin else total * lengths.copies + 1, generator=generator)
    if not lengths.thin:
        row = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        column = torch.cat([torch.arange(count) for count in counts])
    starts = torch.tensor([0, *lengths.queries]).cumsum(0).to(torch.int32)
    lens = torch.tensor(lengths.contexts, dtype=torch.int32)
    copies = []
    for copy in range(lengths.copies):
        table = torch.zeros(len(counts), most, dtype=torch.int32)
        if not lengths.thin:
            table[row, column] = order[copy * total : (copy + 1) * total].to(torch.int32)
        slots = _new_slots(lengths, table, page)
        moved = (tensor.to(device) for tensor in (table, slots, starts, lens))
        copies.append(Places(*moved))
    return copies, 1 if lengths.thin else int(order.shape[0])


def _new_slots(lengths: Lengths, table: Tensor, page: int) -> Tensor:
    owner = torch.repeat_interleave(
        torch.arange(len(lengths.queries)), torch.tensor(lengths.queries)
    )
    position = torch.cat(
        [torch.arange(c - q, c) for q, c in zip(lengths.queries, lengths.contexts, strict=True)]
    )
    return table[owner, position // page].long() * page + position % page


def normal(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of repeated normal numbers, filled as fast as memory takes them."""
    return fill(torch.empty(shape, dtype=dtype, device=device))


def fill(tensor: Tensor) -> Tensor:
    """Fills a dense tensor in place: int8 with its whole range, uint8 never."""
    generator = torch.Generator().manual_seed(11)
    flat = tensor.view(-1)
    drawn = torch.randn(min(PERIOD, flat.numel()), generator=generator)
    if tensor.dtype is torch.int8:
        drawn = (drawn * 40).clamp(-127, 127)
    period = drawn.to(tensor.dtype).to(tensor.device)
    narrow = tensor.dtype.itemsize == 1
    flat, period = (flat.view(torch.uint8), period.view(torch.uint8)) if narrow else (flat, period)
    whole = flat.numel() // period.numel() * period.numel()
    flat[:whole].view(-1, period.numel()).copy_(period)
    flat[whole:].copy_(period[: flat.numel() - whole])
    return tensor


def sub_batch(
    lengths: Lengths, places: Places, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The checked rows as a batch of their own: rows among all, table, starts, lengths.

    They are the last tokens of their sequences, as a shorter chunk of the same would have.
    """
    checked = lengths.checked()
    owners = torch.tensor([b for b, _ in checked], device=device)
    rows = lengths.checked_rows(places.starts.tolist()).to(device)
    starts = torch.tensor([0, *(n for _, n in checked)]).cumsum(0).to(torch.int32).to(device)
    return rows, places.table[owners], starts, places.seq_lens[owners]
