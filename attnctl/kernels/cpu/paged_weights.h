// Weights of few rows of queries: powers of logits, and the sums of a row's weights.

#pragma once

#include "paged_ahead.h"

constexpr float HEADROOM = 8;  // weights may grow to 2^8 before all that came before is scaled

// raises the tops to the highest logits; keep[r] is what the sums of row r are worth then
static void raise_tops(Direct& d, i64 rows, i64 n) {
  for (i64 r = 0; r < rows; r++) {
    const float* row = d.score + r * NEAR;
    vf highest = load(row);
    for (i64 j = LANES; j < n; j += LANES) {
      vf x = load(row + j);
      highest = pick(x > highest, x, highest);
    }
    float top = top_of(highest);
    d.keep[r] = 1;
    if (!(top > d.top[r])) continue;
    d.keep[r] = exp2_one(d.top[r] - top);
    d.top[r] = top;
    float* total = d.total + r * LANES;
    store(total, load(total) * d.keep[r]);
  }
}

// the greater of two lanes; which of them where one is NaN does not matter
INLINE vf max_of(vf a, vf b) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return __builtin_ia32_maxps256(a, b);
#else
  return pick(a > b, a, b);
#endif
}

// Whether a logit is so far above its top that the top has to follow. There are V vectors in a
// row, or n / LANES.
template <i64 V>
INLINE bool any_above(const Direct& d, i64 rows, i64 n) {
  vi above = {};
  for (i64 r = 0; r < rows; r++) {
    const float* row = d.score + r * NEAR;
    vf high = load(row);
#pragma GCC unroll 4
    for (i64 j = 1; j < (V ? V : n / LANES); j++) high = max_of(high, load(row + j * LANES));
    above |= high > d.top[r] + HEADROOM;
  }
  return any_of(above);
}

template <i64 V, bool FETCH>
INLINE bool weigh(Direct& d, i64 rows, i64 n, Ahead& ahead) {
  bool raised = any_above<V>(d, rows, n);
  if (raised) raise_tops(d, rows, n);
  const u8* lines = FETCH ? take_lines(ahead, rows * BETWEEN, (const u8*)d.score) : nullptr;
  for (i64 r = 0; r < rows; r++) {
    if constexpr (FETCH) {
#pragma GCC unroll 8
      for (i64 x = 0; x < BETWEEN; x++) fetch(lines + 64 * x);
      lines += 64 * BETWEEN;
    }
    float *row = d.score + r * NEAR, *total = d.total + r * LANES;
    vf base = splat(d.top[r] == NEVER ? 0 : d.top[r]), sum = load(total);
#pragma GCC unroll 4
    for (i64 j = 0; j < (V ? V : n / LANES); j++) {
      vf w = exp2_of(load(row + j * LANES) - base);
      store(row + j * LANES, w);
      sum += w;
    }
    store(total, sum);
  }
  return raised;
}

// Logits to weights. Whether the tops, and with them the sums so far, have changed: they seldom do,
// for a top need not be the highest logit, only near it. n: whole vectors.
template <bool FETCH>
static bool weigh_tile(Direct& d, i64 rows, i64 n, Ahead& ahead) {
  if (n == NEAR) return weigh<NEAR / LANES, FETCH>(d, rows, n, ahead);
  if (n == NEAR / 2) return weigh<NEAR / 2 / LANES, FETCH>(d, rows, n, ahead);
  return weigh<0, FETCH>(d, rows, n, ahead);
}
