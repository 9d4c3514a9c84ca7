"""How Hopper's prefill kernel cuts a batch: rows of a unit, keys of a tile, heads side by side."""

from __future__ import annotations

from typing import NamedTuple

L2_BYTES = 24 * 2**20
"""Keys and values that heads which run side by side may have: half of an H200's L2."""


class Form(NamedTuple):
    """What a unit and its tiles are. groups: of 64 query rows each; keys: of a tile."""

    groups: int
    keys: int
    depth: int
    """Tiles of keys, and of values, in shared memory."""
    queries: int
    """Units whose queries are in shared memory at once."""
    box: int
    """Rows that are copied at once, at most: a box that begins behind the last row is not."""
    programs: int
    """Programs that a multiprocessor runs at once."""
    side: int
    """Heads that run side by side at most where each has keys of its own."""

    @property
    def rows(self) -> int:
        """Query rows of a unit."""
        return 64 * self.groups


# on an H200, triton 3.6: benchmarks/results/
LONG = Form(2, 128, 2, 1, 128, 1, 128)
"""Tiles that keep the matrix unit busy, and half of which a mask hides where there are few."""

PAIR = Form(2, 64, 3, 2, 64, 1, 128)
"""Two groups on tiles of half the keys, where each skips those that none of its rows sees; the
next unit's queries are on their way while one is computed."""

HALF = Form(1, 64, 2, 1, 64, 2, 16)
"""One group a program and two programs a multiprocessor, each of which computes while the other
waits."""

TINY = Form(1, 32, 3, 2, 16, 2, 32)
"""As HALF, with tiles and boxes that copy little of what lies behind a short sequence."""


class Cut(NamedTuple):
    """How the work is cut. units: tiles x heads; together: heads that run side by side.

    tiles_a_sequence: 0 where which sequence owns a tile is to be searched for.
    """

    tiles_a_head: int
    tiles_a_sequence: int
    together: int
    units: int


def form_of(
    tokens: int, keys: int, sequences: int, longest: int, heads: int, multiprocessors: int
) -> Form:
    """The form for packed rows. keys: of all sequences; longest: query tokens of one at most.

    With a context before them the queries are few and the keys many: LONG has the widest tiles.
    """
    if 2 * keys > 3 * tokens:
        return LONG
    halves = -(-longest // 64)
    if halves * sequences > tokens // 64 + sequences:
        # of many lengths: what the last tile of each leaves empty counts most
        return HALF if tokens <= 320 * sequences else LONG
    if longest <= 32:
        return TINY
    # the second half of a last tile of 128 rows is empty, or all of them run at once in any case
    odd = halves % 2 and halves <= 9
    alone = halves == 2 and sequences * heads <= multiprocessors
    if odd or alone:
        return HALF
    return PAIR if halves <= 6 else LONG


def cut_units(
    tokens: int,
    sequences: int,
    longest: int,
    heads: int,
    ratio: int,
    head_bytes: int,
    form: Form = LONG,
) -> Cut:
    """The units of a batch whose longest query has no more than `longest` tokens.

    head_bytes: keys and values of one sequence and KV head.
    """
    rows = form.rows
    tiles, each = tokens // rows + sequences, max(1, -(-longest // rows))
    if each * sequences <= tiles:
        tiles = each * sequences
    else:
        each = 0
    together, most = ratio, heads if ratio > 1 else form.side
    while 2 * together <= most and heads % (2 * together) == 0:
        if 2 * together // ratio * head_bytes > L2_BYTES:
            break
        together *= 2
    return Cut(tiles, each, together, tiles * heads)


def counts_units(cut: Cut, form: Form, longest: int, programs: int) -> bool:
    """Whether programs take units one after the other as they are done, by a counter.

    One or two units of a short sequence are of much the same work: every programs-th will do, which
    spares the counter's zeros and the way to it. Many whole ones are bound by memory, to which some
    multiprocessors have a shorter way.
    """
    if cut.units <= programs:
        return False
    many = cut.units >= 16 * programs and 16 * longest > 15 * form.rows
    whole = form is PAIR and cut.tiles_a_sequence == 1 and many
    return form is LONG or whole or not 1 <= cut.tiles_a_sequence <= 2
