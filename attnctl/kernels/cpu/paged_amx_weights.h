// Weights of rows of scores that AMX's tiles have made, rounded to bfloat16.

#pragma once

#include "paged_amx_layout.h"

#if TILES

INLINE v8 higher(v8 a, v8 b) { return a > b ? a : b; }

INLINE v8 halves_top(vf x) {
#if defined(__AVX512F__)
  return higher(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  return x;
#endif
}

INLINE v8 pair_tops(v8 a, v8 b) {
  return higher(SHUFFLE8(a, b, 0, 8, 1, 9, 4, 12, 5, 13), SHUFFLE8(a, b, 2, 10, 3, 11, 6, 14, 7, 15));
}

INLINE v8 quad_tops(const vf* x) {
  v8 ab = pair_tops(halves_top(x[0]), halves_top(x[1]));
  v8 cd = pair_tops(halves_top(x[2]), halves_top(x[3]));
  return higher(SHUFFLE8(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13),
                SHUFFLE8(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15));
}

// the highest of each of eight vectors, in order
INLINE v8 tops_of(const vf* x) {
  v8 low = quad_tops(x), high = quad_tops(x + 4);
  return higher(SHUFFLE8(low, high, 0, 1, 2, 3, 8, 9, 10, 11),
                SHUFFLE8(low, high, 4, 5, 6, 7, 12, 13, 14, 15));
}

// the highest of n scores of each of `rows` rows, a multiple of eight
INLINE void tops_of_rows(const float* score, i64 n, i64 rows, float* tops) {
  for (i64 r = 0; r < rows; r += 8) {
    vf high[8];
#pragma GCC unroll 8
    for (i64 x = 0; x < 8; x++) {
      const float* row = score + (r + x) * SCORES;
      vf a = load(row), b = load(row + LANES);
      for (i64 j = 2 * LANES; j < n; j += 2 * LANES) {
        a = greater_of(a, load(row + j));
        b = greater_of(b, load(row + j + LANES));
      }
      high[x] = greater_of(a, b);
    }
    *(v8_any*)(tops + r) = tops_of(high);
  }
}

// n scores of each row, times `factor`, to weights, and their sums
INLINE void powers_of_rows(const float* score, i64 n, i64 rows, float factor, const float* base,
                           u16* weight, float* totals) {
  for (i64 r = 0; r < rows; r += 8) {
    vf total[8];
#pragma GCC unroll 8
    for (i64 x = 0; x < 8; x++) {
      const float* row = score + (r + x) * SCORES;
      u16* to = weight + (r + x) * SPAN;
      vf low = splat(base[r + x]), sum = {}, rest = {};
      for (i64 j = 0; j < n; j += 2 * LANES) {
        vf a = power_of(load(row + j) * factor - low);
        vf b = power_of(load(row + j + LANES) * factor - low);
        put_bf16s(to + j, a, b);
        sum += a;
        rest += b;
      }
      total[x] = sum + rest;
    }
    *(v8_any*)(totals + r) = sums_of(total);
  }
}

// Scores of a block of rows, times `factor`, to weights. Tops and totals go on over spans, and what
// the sums so far are worth is multiplied into them. A factor below 0 would turn the order round.
static void weigh_block_of(i64 rows, i64 n, const float* score, float factor, i64 wide, u16* weight,
                           float* top, float* total, float* sums) {
  alignas(64) float high[BLOCK], base[BLOCK], keep[BLOCK], more[BLOCK];
  tops_of_rows(score, n, rows, high);
  for (i64 r = 0; r < rows; r += LANES) {
    vf before = load(top + r), now = greater_of(before, load(high + r) * factor);
    vf low = pick(now == NEVER, (vf){}, now);
    store(top + r, now);
    store(base + r, low);
    store(keep + r, exp2_of(before - low));
  }
  powers_of_rows(score, n, rows, factor, base, weight, more);
  for (i64 r = 0; r < rows; r += LANES)
    store(total + r, load(total + r) * load(keep + r) + load(more + r));
  for (i64 r = 0; r < rows; r++) {
    if (keep[r] == 1.0f) continue;
    float* row = sums + r * wide;
    for (i64 c = 0; c < wide; c += LANES) store(row + c, load(row + c) * keep[r]);
  }
}

#endif
