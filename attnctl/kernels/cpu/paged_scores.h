// Scores of few rows of queries: products with keys as they are stored.

#pragma once

#include "paged_ahead.h"
#include "paged_shared.h"

// ---- scores ----

// sum[r][x] += query[r] . key[x] for R rows and J tokens; d is the lane
template <class T, i64 R, i64 J, bool FETCH>
INLINE void dot_whole(const float* query, i64 pad, const u8* const* key, i64 whole,
                      const u8* lines, vf* sum) {
  constexpr i64 bytes = J * 2 * LANES * T::size;
  for (i64 d = 0; d < whole; d += 2 * LANES) {
    Two k[J];
    if constexpr (FETCH) {
#pragma GCC unroll 8
      for (i64 x = 0; x < bytes; x += 64) fetch(lines + x);
      lines += bytes;
    }
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) k[x] = read_two<T>(key[x] + d * T::size);
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
      vf q = *(const vf*)(query + r * pad + d);
      IN_REGISTER(q);
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) sum[r * J + x] += q * k[x].a;
    }
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
      vf q = *(const vf*)(query + r * pad + d + LANES);
      IN_REGISTER(q);
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) sum[r * J + x] += q * k[x].b;
    }
  }
}

// the same for the columns that are left
template <class T, i64 R, i64 J>
INLINE void dot_rest(const float* query, i64 pad, const u8* const* key, i64 d, i64 width, vf* sum) {
  for (; d < width; d += LANES) {
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) {
      vf k = read_most<T>(key[x], d, width);
#pragma GCC unroll 8
      for (i64 r = 0; r < R; r++) sum[r * J + x] += *(const vf*)(query + r * pad + d) * k;
    }
  }
}

// Scores of R rows and STEP tokens. Lanes are added up for all of them at the end, where no sum
// waits for another; a function of its own, so that the loops keep the registers.
template <class T, i64 R, bool FETCH, bool REST>
static __attribute__((noinline)) void dots(const float* query, i64 pad, const u8* const* key,
                                           i64 width, Ahead& ahead, float* score) {
  constexpr i64 J = least(SUMS / R, STEP);
  i64 whole = width / (2 * LANES) * (2 * LANES);
  vf sums[R][STEP];
  for (i64 j = 0; j < STEP; j += J) {
    const u8* lines = FETCH ? take_lines(ahead, J * whole * T::size / 64, key[j]) : nullptr;
    vf sum[R * J] = {};
    dot_whole<T, R, J, FETCH>(query, pad, key + j, whole, lines, sum);
    if constexpr (REST) dot_rest<T, R, J>(query, pad, key + j, whole, width, sum);
#pragma GCC unroll 8
    for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) sums[r][j + x] = sum[r * J + x];
    }
  }
  for (i64 r = 0; r < R; r++) *(v8_any*)(score + r * NEAR) = sums_of(sums[r]);
}

// One row is done with a key before memory has the next: keys one by one, and each token's value is
// touched after its key, so that loads, too, come in the order of memory. A function of its own: it
// is a twentieth slower inlined.
template <class T>
static __attribute__((noinline)) void dots_alone(const float* query, const Tile& t, i64 j,
                                                 i64 width, i64 value_bytes, Ahead& ahead,
                                                 float* score) {
  vf sums[STEP];
  for (i64 x = 0; x < STEP; x++) {
    const u8* key = t.key[j + x];
    const u8* lines = take_lines(ahead, width * T::size / 64, key);
    for (i64 x = 0; x < width * T::size; x += 64) fetch(lines + x);
    vf sum[4] = {};
    i64 d = 0;
    for (; d + 4 * LANES <= width; d += 4 * LANES) {
#pragma GCC unroll 2
      for (i64 half = 0; half < 4; half += 2) {
        Two k = read_two<T>(key + (d + half * LANES) * T::size);
        sum[half] += *(const vf*)(query + d + half * LANES) * k.a;
        sum[half + 1] += *(const vf*)(query + d + (half + 1) * LANES) * k.b;
      }
    }
    for (; d + 2 * LANES <= width; d += 2 * LANES) {
      Two k = read_two<T>(key + d * T::size);
      sum[0] += *(const vf*)(query + d) * k.a;
      sum[1] += *(const vf*)(query + d + LANES) * k.b;
    }
    for (; d < width; d += LANES) sum[2] += *(const vf*)(query + d) * read_most<T>(key, d, width);
    sums[x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    touch_row(t.value[j + x], value_bytes);
  }
  *(v8_any*)score = sums_of(sums);
}

// the first rows fetch what lies ahead
template <class T, i64 R>
INLINE void score_rows(const float* query, i64 pad, const u8* const* key, i64 width, Ahead& ahead,
                       i64& r, i64 rows, float* score) {
  bool rest = width % (2 * LANES) != 0;
  for (; r + R <= rows; r += R) {
    const float* q = query + r * pad;
    float* to = score + r * NEAR;
    if (rest && !r) dots<T, R, true, true>(q, pad, key, width, ahead, to);
    else if (rest) dots<T, R, false, true>(q, pad, key, width, ahead, to);
    else if (!r) dots<T, R, true, false>(q, pad, key, width, ahead, to);
    else dots<T, R, false, false>(q, pad, key, width, ahead, to);
  }
}

// The same for more rows, where the row is the lane: nothing is left to be added up. The query is
// [width][V * LANES], the keys are floats; `size` bytes were read of each.
template <i64 V, i64 size>
INLINE void dots_across(const float* query, const float* const* key, i64 width, Ahead& ahead,
                        float* score) {
  constexpr i64 J = STEP / V;
  vf sum[V][J] = {};
  const u8* lines = take_lines(ahead, width * J * size / 64, (const u8*)key[0]);
  for (i64 d = 0; d < width; d++, query += V * LANES, lines += J * size) {
    fetch(lines);
    vf q[V];
#pragma GCC unroll 2
    for (i64 v = 0; v < V; v++) {
      q[v] = *(const vf*)(query + v * LANES);
      IN_REGISTER(q[v]);
    }
#pragma GCC unroll 8
    for (i64 x = 0; x < J; x++) {
      vf k = splat(key[x][d]);
#pragma GCC unroll 2
      for (i64 v = 0; v < V; v++) sum[v][x] += q[v] * k;
    }
  }
#pragma GCC unroll 2
  for (i64 v = 0; v < V; v++) {
    for (i64 half = 0; half < LANES; half += 8) {
      v8 block[8] = {};
#pragma GCC unroll 8
      for (i64 x = 0; x < J; x++) block[x] = *(const v8_any*)((const float*)&sum[v][x] + half);
      transpose8(block);
      float* to = score + (v * LANES + half) * NEAR;
#pragma GCC unroll 8
      for (i64 r = 0; r < 8; r++, to += NEAR) {
        if constexpr (J == 8) *(v8_any*)to = block[r];
        else *(v4_any*)to = lower4(block[r]);
      }
    }
  }
}

template <class T, i64 V>
INLINE void score_across(const float* query, const u8* const* key, i64 width, Ahead& ahead,
                         float* floats, float* score) {
  constexpr i64 J = STEP / V;
  const float* rows[STEP];
  i64 pad = ceil_to(width, LANES);
  for (i64 x = 0; x < STEP; x++) {
    rows[x] = T::size == 4 ? (const float*)key[x] : floats + x * pad;
    if constexpr (T::size < 4) widen_row<T>(key[x], width, floats + x * pad);
  }
  for (i64 x = 0; x < STEP; x += J)
    dots_across<V, T::size>(query, rows + x, width, ahead, score + x);
}

template <class T>
static void score_tile(Direct& d, const Attention& a, const Tile& t, Ahead& ahead, i64 rows) {
  i64 w = a.width, pad = ceil_to(w, LANES), lanes = across(rows), share = shared(rows, w);
  if (share == 2) return score_shared<T, 2>(d.query, t.key, t.n, w, ahead, d.floats, d.score);
  if (share == 4) return score_shared<T, 4>(d.query, t.key, t.n, w, ahead, d.floats, d.score);
  for (i64 j = 0; j < t.n; j += STEP) {
    const u8* const* key = t.key + j;
    float* score = d.score + j;
    if (lanes == LANES) score_across<T, 1>(d.query, key, w, ahead, d.floats, score);
    else if (lanes) score_across<T, 2>(d.query, key, w, ahead, d.floats, score);
    if (lanes) continue;
    if (rows == 1)
      dots_alone<T>(d.query, t, j, w, a.value_width * T::size, ahead, score);
    i64 r = rows == 1;
    if constexpr (ROWS == 8) score_rows<T, 8>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 4>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 2>(d.query, pad, key, w, ahead, r, rows, score);
    score_rows<T, 1>(d.query, pad, key, w, ahead, r, rows, score);
  }
}
