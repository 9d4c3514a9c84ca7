"""The units of Hopper's prefill kernel: a tile of query rows of one head, handed out in succession.

There is room for every way that T tokens can fall into B sequences: T / ROWS + B tiles a head, some
of which are empty, and which sequence owns a tile is searched for. Where as many tiles for each
sequence as the longest has are no more than that, they are laid out so: sequences of one length
have no empty ones, and nothing is searched for. Units run by groups of heads whose keys fit the L2
side by side, and within a group backwards: with a causal mask the longest start first.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier


@gluon.jit
def place_of(
    unit, total, STARTS, KEY_STARTS, sequences, tiles_a_head, tiles_a_sequence, together,
    ROWS: gl.constexpr, PAGE: gl.constexpr,
):  # fmt: skip
    """Where a unit lies: head, first row of its sequence, that one's begin, queries and keys.

    A unit behind the last stands for that one. Last but one: the first key's row, or with pages
    the sequence, of which KEY_STARTS holds the length.
    """
    unit = gl.minimum(unit, total - 1)
    group = unit // (tiles_a_head * together)
    rest = unit - group * tiles_a_head * together
    head = group * together + rest % together
    tile = tiles_a_head - 1 - rest // together
    sequence = tile // gl.maximum(tiles_a_sequence, 1)
    slot = tile - sequence * tiles_a_sequence
    if tiles_a_sequence == 0:
        low = 0
        high = sequences
        while low < high:
            middle = (low + high) // 2
            if gl.load(STARTS + middle) // ROWS + middle <= tile:
                low = middle + 1
            else:
                high = middle
        sequence = low - 1
        slot = tile - gl.load(STARTS + sequence) // ROWS - sequence
    first = gl.load(STARTS + sequence)
    queries = gl.load(STARTS + sequence + 1) - first
    begin = slot * ROWS
    if PAGE > 0:
        key_first = sequence
        length = gl.load(KEY_STARTS + sequence)
    else:
        key_first = gl.load(KEY_STARTS + sequence)
        length = gl.load(KEY_STARTS + sequence + 1) - key_first
    return head, begin, first, queries, key_first, length


@gluon.jit
def tiles_of(begin, queries, length, ROWS: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr):
    """The tiles of keys that ROWS rows from `begin` on see, at least one, how many each of them
    sees whole, and the first row's position.

    A row without keys still needs its zeros, so that there is a tile, all of it masked.
    """
    position = length - queries + begin
    hi = length
    whole = length // KEYS
    if CAUSAL:
        hi = gl.minimum(length, position + ROWS)
        whole = gl.minimum(whole, gl.maximum(position + 1, 0) // KEYS)
    return gl.maximum(gl.cdiv(hi, KEYS), 1), whole, position


@gluon.jit
def read_unit(units, announced, done, PLACES: gl.constexpr):
    """The unit after `done` others, when the copying warp has announced it."""
    everywhere: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    mbarrier.wait(announced.index(done % PLACES), done // PLACES & 1)
    return gl.max(units.index(done % PLACES).load(everywhere), 0)
