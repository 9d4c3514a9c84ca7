"""The gated delta rule in chunks, first part: every chunk by itself, all of them in parallel.

Within a chunk each update depends on the earlier ones: (I + M) u = beta (v - decayed S k), M
strictly lower triangular. This inverts I + M, applies the inverse to values and keys, and leaves
what the walk (gdn_chunks) needs to carry a state through a chunk in four products:

  TO_VALUES [Dv, i], TO_KEYS [D, i]: (I + M)^-1 beta v and minus (I + M)^-1 beta k, transposed
  WEIGHTS [j, i]: how much the update of token j counts in the output of token i
  GAIN, LEFT [i]: factors of the state in output i, and of update i in the state after the chunk

Everything lies by chunk slot (rows.chunk_slot), so that no load of the walk has a mask. Every
product is computed in the orientation in which it is used: no computed operand is transposed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from attnctl.kernels.triton.states.rows import chunk_of_row, softplus


@triton.jit
def join_blocks(found, upper, j, i, BLOCK: tl.constexpr, FULL: tl.constexpr):
    """The inverse in blocks of 2 BLOCK rows from that in blocks of BLOCK."""
    kind: tl.constexpr = tl.float32 if FULL else tl.float16
    pairs = (j // (2 * BLOCK) == i // (2 * BLOCK)) & (j // BLOCK != i // BLOCK)
    between = tl.where(pairs, upper, 0.0).to(kind)
    narrow = found.to(kind)
    left = tl.dot(narrow, between).to(kind)
    return found - tl.dot(left, narrow)


@triton.jit
def inverse(upper, CHUNK: tl.constexpr, FULL: tl.constexpr):
    """(I + upper)^-1 of a strictly upper triangular matrix, by inverting blocks of growing size.

    Each step joins pairs of inverted blocks, so nothing is larger than an inverse: powers of
    `upper` would lose all digits where keys resemble each other. Products are of float16, whose
    eleven bits are more than bfloat16's eight and whose range the entries do not leave.
    """
    j = tl.arange(0, CHUNK)[:, None]
    i = tl.arange(0, CHUNK)[None, :]
    found = tl.where(j == i, 1.0, tl.where(j // 2 == i // 2, -upper, 0.0))
    found = join_blocks(found, upper, j, i, 2, FULL)
    found = join_blocks(found, upper, j, i, 4, FULL)
    found = join_blocks(found, upper, j, i, 8, FULL)
    if CHUNK > 16:
        found = join_blocks(found, upper, j, i, 16, FULL)
    if CHUNK > 32:
        found = join_blocks(found, upper, j, i, 32, FULL)
    return found


@triton.jit
def prepare_kernel(
    Q,
    K,
    V,
    G,
    BETA,
    TO_VALUES,
    TO_KEYS,
    WEIGHTS,
    GAIN,
    LEFT,
    WHOLE,
    A_LOG,
    BIAS,
    STARTS,
    SLOTS,
    VERIFIED,
    stride_slots,
    stride_qt,
    stride_qh,
    stride_kt,
    stride_kh,
    stride_vt,
    stride_vh,
    stride_gt,
    stride_gh,
    stride_bt,
    stride_bh,
    scale,
    epsilon,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    D_BLOCK: tl.constexpr,
    DV: tl.constexpr,
    DV_BLOCK: tl.constexpr,
    L2NORM: tl.constexpr,
    CHUNK: tl.constexpr,
    FULL: tl.constexpr,
):
    """Program (head, chunk of a row, row). FULL: products in float32, for the interpreter."""
    head = tl.program_id(0).to(tl.int64)
    first, count, at = chunk_of_row(STARTS, SLOTS, VERIFIED, stride_slots, CHUNK)
    if count <= 0:
        return
    at = at * HEADS + head
    i = tl.arange(0, CHUNK)
    real = i < count
    t = first + i
    d = tl.arange(0, D_BLOCK)
    real_d = d < D
    gate = tl.load(G + t * stride_gt + head * stride_gh, mask=real, other=0.0).to(tl.float32)
    if A_LOG is not None:
        if BIAS is not None:
            gate += tl.load(BIAS + head).to(tl.float32)
        gate = tl.where(real, -tl.exp(tl.load(A_LOG + head).to(tl.float32)) * softplus(gate), 0.0)
    beta = tl.load(BETA + t * stride_bt + head * stride_bh, mask=real, other=0.0).to(tl.float32)
    total = tl.cumsum(gate, 0)
    whole = tl.sum(gate, 0)

    key_at = K + head // GROUP * stride_kh
    rows = real[:, None] & real_d[None, :]
    columns = real_d[:, None] & real[None, :]
    k = tl.load(key_at + t[:, None] * stride_kt + d[None, :], mask=rows, other=0.0)
    kt = tl.load(key_at + t[None, :] * stride_kt + d[:, None], mask=columns, other=0.0)
    if FULL:
        k = k.to(tl.float32)
        kt = kt.to(tl.float32)
    kind: tl.constexpr = k.dtype
    k_norm = tl.full([CHUNK], 1.0, tl.float32)
    if L2NORM:
        wide = kt.to(tl.float32)
        k_norm = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) + epsilon)
    j = i[:, None]
    forward = i[None, :] >= j
    decay = tl.exp(tl.where(forward, total[None, :] - total[:, None], -float("inf")))
    decay = decay * k_norm[:, None]
    overlap = tl.dot(k, kt) * decay * (k_norm * beta)[None, :]
    q_at = Q + head // GROUP * stride_qh + t[None, :] * stride_qt + d[:, None]
    qt = tl.load(q_at, mask=columns, other=0.0)
    q_norm = tl.full([CHUNK], scale, tl.float32)
    if L2NORM:
        wide = qt.to(tl.float32)
        q_norm = scale / tl.sqrt(tl.sum(wide * wide, 0) + epsilon)
    weights = tl.dot(k, qt.to(kind)) * decay * q_norm[None, :]
    weights_at = WEIGHTS + at * (CHUNK * CHUNK) + j * CHUNK + i[None, :]
    tl.store(weights_at, weights.to(WEIGHTS.dtype.element_ty))
    tl.store(GAIN + at * CHUNK + i, q_norm * tl.exp(total))
    tl.store(LEFT + at * CHUNK + i, k_norm * tl.exp(whole - total))
    tl.store(WHOLE + at, tl.exp(whole))
    solved = inverse(tl.where(i[None, :] > j, overlap, 0.0), CHUNK, FULL)

    # read anew, from the cache: held through the inversion they would fill the registers
    kt = tl.load(key_at + t[None, :] * stride_kt + d[:, None], mask=columns, other=0.0).to(kind)
    keys = tl.dot(kt, (solved * (-beta * k_norm * tl.exp(total))[:, None]).to(kind))
    to_keys = TO_KEYS + at * (D_BLOCK * CHUNK) + d[:, None] * CHUNK + i[None, :]
    tl.store(to_keys, keys.to(TO_KEYS.dtype.element_ty))
    v = tl.arange(0, DV_BLOCK)
    v_at = V + head * stride_vh + t[None, :] * stride_vt + v[:, None]
    vt = tl.load(v_at, mask=(v < DV)[:, None] & real[None, :], other=0.0).to(kind)
    values = tl.dot(vt, (solved * beta[:, None]).to(kind))
    to_values = TO_VALUES + at * (DV_BLOCK * CHUNK) + v[:, None] * CHUNK + i[None, :]
    tl.store(to_values, values.to(TO_VALUES.dtype.element_ty))
