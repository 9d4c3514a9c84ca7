"""Latent attention for Hopper's matrix unit: three groups of warps that hand tiles to each other.

A program holds 64 heads of one query token, and their 64 x 512 running sums fill half of a
multiprocessor's registers, so that no second program could run beside it while this one computes
its softmax. Instead one group of warps makes logits and weights, and two copy rows and add the
weighted ones, all at once.

RESIDENT: the query's latent part lies in registers of the first group, which leaves room for a
third tile of rows, and the sums wait until the next tile's logits have had the matrix unit, so that
they run beside its softmax. That is 10 % where two programs read each row and their copies from the
L2 (5.5 TB/s on an H200) and the products are what counts, and 1 to 3 % lost where rows come from
memory once.

Written in Gluon, Triton's explicit layer, which the interpreter does not run: the portable kernels
say what it must give.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from attnctl.kernels.triton.latent.hopper_add import add_rows
from attnctl.kernels.triton.latent.hopper_rows import FIRST, LATENTS, ROPES, TILE
from attnctl.kernels.triton.latent.hopper_rows import copy_box as copy_box
from attnctl.kernels.triton.latent.hopper_rows import sync_warps as sync_warps
from attnctl.kernels.triton.latent.hopper_weigh import weigh_rows


@gluon.jit
def release_successor():
    """Lets a kernel that waits for this one's end be launched before it (PTX: griddepcontrol)."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; mov.u32 $0, 0;",
        "=r",
        [],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def find_sequence(STARTS, tile, sequences, PACKED: gl.constexpr):
    """The sequence that owns a tile of PACKED query tokens; empty sequences own none."""
    low = 0
    high = sequences
    while low < high:
        middle = (low + high) // 2
        mark = gl.load(STARTS + middle)
        if PACKED > 1:
            mark = mark // PACKED + middle
        if mark <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@gluon.jit
def mla_hopper_kernel(
    Q,
    CACHE,
    BYTES,
    SCALES,
    ROWS,
    OUT,
    LSE,
    STARTS,
    LENGTHS,
    PART,
    PART_LSE,
    LATENT_BOX,
    ROPE_BOX,
    stride_qt,
    stride_qh,
    stride_n,
    stride_p: gl.constexpr,
    stride_bytes_n,
    stride_bytes_p,
    stride_rows,
    stride_ot,
    stride_oh,
    stride_st,
    stride_sh,
    factor,
    v_scale,
    sequences,
    limit,
    listed,
    least_tiles,
    HEADS: gl.constexpr,
    HEADS_BLOCK: gl.constexpr,
    PAGE: gl.constexpr,
    SPARSE: gl.constexpr,
    SPLIT: gl.constexpr,
    L: gl.constexpr,
    R: gl.constexpr,
    RESIDENT: gl.constexpr,
):
    """Grid: (T x parts of 64 heads, segments), the parts of a token side by side.

    Dense: ROWS is the block table, the keys are those at or before the query token. SPARSE: ROWS
    holds `listed` slots a token, of which those within 0 .. limit - 1 are seen. HEADS_BLOCK below
    64: a tile holds the heads of several query tokens of a sequence, and the grid starts with
    T / tokens + B, in which sequence b's first tile is starts[b] / tokens + b.
    """
    PARTS: gl.constexpr = (HEADS + 63) // 64
    PACKED: gl.constexpr = 64 // HEADS_BLOCK
    tile = gl.program_id(0) // PARTS
    first = gl.program_id(0) % PARTS * 64
    segment = gl.program_id(1)
    segments = gl.num_programs(1)
    visible = 0
    tokens = 1
    if SPARSE:
        token = tile.to(gl.int64)
        if token >= gl.load(STARTS + sequences):
            return
        hi = listed
        rows = ROWS + token * stride_rows
    else:
        if PACKED > 1:
            sequence = find_sequence(STARTS, tile, sequences, PACKED)
            start = gl.load(STARTS + sequence)
            last = gl.load(STARTS + sequence + 1)
            length = gl.load(LENGTHS + sequence)
            token = start + (tile - start // PACKED - sequence) * PACKED
            if token >= last:
                return
            tokens = gl.minimum(last - token, PACKED)
        else:
            # mostly every sequence has one query token: four loads at once tell whether that is so
            token = tile
            whole = gl.load(STARTS + sequences)
            sequence = gl.minimum(tile, sequences - 1)
            start = gl.load(STARTS + sequence)
            last = gl.load(STARTS + sequence + 1)
            length = gl.load(LENGTHS + sequence)
            if tile >= whole:
                return
            if (tile < start) | (tile >= last):
                sequence = find_sequence(STARTS, tile, sequences, PACKED)
                last = gl.load(STARTS + sequence + 1)
                length = gl.load(LENGTHS + sequence)
        visible = (length - last + token + 1).to(gl.int32)
        hi = visible + tokens - 1
        token = token.to(gl.int64)
        # no table has 2^31 entries
        rows = ROWS + sequence * stride_rows
    tiles = gl.maximum(gl.cdiv(gl.cdiv(hi, TILE), segments), least_tiles)
    begin = segment * tiles * TILE
    end = gl.minimum(begin + tiles * TILE, hi)

    dtype: gl.constexpr = Q.dtype.element_ty
    UNPACK: gl.constexpr = BYTES is not None
    DEPTH: gl.constexpr = LATENTS if RESIDENT else ROPES
    if SPLIT:
        release_successor()
    wide: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, L], dtype)
    narrow: gl.constexpr = gl.NVMMASharedLayout.get_default_for([TILE, R], dtype)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    latents = gl.allocate_shared_memory(dtype, [DEPTH, TILE, L], wide)
    ropes = gl.allocate_shared_memory(dtype, [ROPES, TILE, R], narrow)
    q_rope = gl.allocate_shared_memory(dtype, [64, R], narrow)
    if RESIDENT:
        q_latent = latents.index(LATENTS - 1)
        q_first = gl.allocate_shared_memory(dtype, [64, FIRST], narrow)
    else:
        q_latent = gl.allocate_shared_memory(dtype, [64, L], wide)
        q_first = q_rope
    fades = gl.allocate_shared_memory(gl.float32, [ROPES + 1, 64], plain)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    rope_full = gl.allocate_shared_memory(gl.int64, [ROPES, 1], mbarrier.MBarrierLayout())
    weighed = gl.allocate_shared_memory(gl.int64, [ROPES + 1, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [ROPES, 1], mbarrier.MBarrierLayout())
    going = gl.allocate_shared_memory(gl.int64, [ROPES, 1], mbarrier.MBarrierLayout())
    # every thread that copies arrives when its copies are done; boxes have one to wait for them
    copies: gl.constexpr = 256 if LATENT_BOX is None else 1
    mbarrier.init(q_full, count=256)
    for i in gl.static_range(DEPTH):
        mbarrier.init(full.index(i), count=copies)
    for i in gl.static_range(ROPES):
        mbarrier.init(rope_full.index(i), count=copies)
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(going.index(i), count=1)
    for i in gl.static_range(ROPES + 1):
        mbarrier.init(weighed.index(i), count=1)
    asked = (q_latent, q_first, q_rope, q_full)
    places = (latents, ropes, fades)
    barriers = (full, rope_full, weighed, empty, going)

    heads = HEADS - first
    # what is left of 168 a thread, the sums' groups give up: 160 is what they need
    REGISTERS: gl.constexpr = 168 if not RESIDENT else 176 if SPARSE else 184
    # Triton 3.6 takes no None into a group: what is not there is not read
    packed = STARTS if BYTES is None else BYTES
    scales = STARTS if BYTES is None else SCALES
    query = Q + token * stride_qt + first * stride_qh
    if SPLIT:
        at = (token * HEADS + first) * segments + segment
        out = PART + at * L
        lse = PART_LSE + at
        stride_ot = HEADS * segments * L
        stride_oh = segments * L
        stride_st = HEADS * segments
        stride_sh = segments
        unit = 1.0
    else:
        out = OUT + token * stride_ot + first * stride_oh
        unit = 0.6931471805599453
        lse = STARTS if LSE is None else LSE + token * stride_st + first * stride_sh
    gl.warp_specialize(
        [
            (
                add_rows,
                (
                    asked, places, barriers, LATENT_BOX, ROPE_BOX, query, CACHE, rows, out, begin,
                    end, limit, stride_qt, stride_qh, stride_n, stride_p, stride_ot, stride_oh,
                    tokens, heads, HEADS_BLOCK, PAGE, SPARSE, UNPACK, RESIDENT, not SPLIT,
                ),
            ),
            (
                weigh_rows,
                (
                    asked, places, barriers, packed, scales, rows, lse, begin, end, limit, visible,
                    stride_bytes_n, stride_bytes_p, stride_st, stride_sh, tokens, heads,
                    factor, v_scale, unit, HEADS_BLOCK, PAGE, SPARSE, UNPACK, RESIDENT,
                    SPLIT or LSE is not None,
                ),
            ),
        ],
        [4],
        [REGISTERS],
    )  # fmt: skip
