// Scores of three to eight rows of queries in vectors of eight lanes. A lane is a row and one of L
// columns: a key is read once for two vectors of rows, and few lanes are left to be added up.

#pragma once

#include "paged_ahead.h"

// a row of keys as floats, in the order of read_two
template <class T>
INLINE void widen_row(const u8* from, i64 width, float* to) {
  i64 d = 0;
  for (; d + 2 * LANES <= width; d += 2 * LANES) {
    Two two = read_two<T>(from + d * T::size);
    *(vf*)(to + d) = two.a;
    *(vf*)(to + d + LANES) = two.b;
  }
  for (; d < width; d += LANES) *(vf*)(to + d) = read_most<T>(from, d, width);
}

#if defined(__AVX2__) && !defined(__AVX512F__)

typedef char c32 __attribute__((vector_size(32)));

// L floats again and again
template <i64 L>
INLINE v8 repeated(const void* p) {
  if constexpr (L == 4) {
    v8 x;  // compilers make a load and a shuffle of it
    __asm__("vbroadcastf128 %1, %0" : "=x"(x) : "m"(*(const v4_any*)p));
    return x;
  } else {
    double two = *(const double_any*)p;
    return (v8)(d4){two, two, two, two};
  }
}

#define BF(x) -1, -1, 2 * (x), 2 * (x) + 1
constexpr c32 PICK[2][2] = {  // of repeated bfloat16 those that a half of a vector holds, as floats
    {{BF(0), BF(1), BF(0), BF(1), BF(0), BF(1), BF(0), BF(1)},
     {BF(2), BF(3), BF(2), BF(3), BF(2), BF(3), BF(2), BF(3)}},
    {{BF(0), BF(1), BF(2), BF(3), BF(0), BF(1), BF(2), BF(3)},
     {BF(4), BF(5), BF(6), BF(7), BF(4), BF(5), BF(6), BF(7)}}};
#undef BF

// L columns of a key in every L lanes, and the next L
template <class T, i64 L>
INLINE Two columns_of(const u8* p) {
  if constexpr (T::split) {
    c32 x = (c32)repeated<L>(p), a = PICK[L == 4][0], b = PICK[L == 4][1];
    return {(vf)__builtin_ia32_pshufb256(x, a), (vf)__builtin_ia32_pshufb256(x, b)};
  } else {
    return {repeated<L>(p), repeated<L>(p + L * T::size)};
  }
}

INLINE v8 even_odd_sums(v8 a, v8 b) {
  return SHUFFLE8(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + SHUFFLE8(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

// Scores of 16 / L rows. The query is [width / L][2][8 / L][L]; a column of a key had `size` bytes.
template <class T, i64 L, i64 size>
static __attribute__((noinline)) void dots_shared(const float* queries, const u8* const* key, i64 n,
                                                  i64 width, Ahead& ahead, float* score) {
  // Columns that fetch nothing, where BETWEEN is fetched later. A variable costs a twentieth.
  constexpr i64 SKIPPED = L == 2 && size == 4 ? 16 : 0;
  for (i64 j = 0; j < n; j += 4, key += 4, score += 4) {
    const float* query = queries;
    v8 sum[2][4] = {};
    i64 count = most(width * 4 * size / 64 - SKIPPED * 4 * size / 64, 0);
    const u8* lines = take_lines(ahead, count, key[0]);
    for (i64 d = 0; d < width; d += 8) {
      if (d >= SKIPPED) {
#pragma GCC unroll 2
        for (i64 x = 0; x < 32 * size; x += 64) fetch(lines + x);
        lines += 32 * size;
      }
#pragma GCC unroll 2
      for (i64 part = 0; part < 8; part += 2 * L, query += 32) {
        v8 q[4];
#pragma GCC unroll 4
        for (i64 v = 0; v < 4; v++) {
          q[v] = *(const v8*)(query + v * 8);
          IN_REGISTER(q[v]);
        }
#pragma GCC unroll 4
        for (i64 x = 0; x < 4; x++) {
          Two k = columns_of<T, L>(key[x] + (d + part) * T::size);
          sum[0][x] += q[0] * k.a;
          sum[1][x] += q[1] * k.a;
          sum[0][x] += q[2] * k.b;
          sum[1][x] += q[3] * k.b;
        }
      }
    }
#pragma GCC unroll 2
    for (i64 v = 0; v < 2; v++) {
      v8 ab = even_odd_sums(sum[v][0], sum[v][1]), cd = even_odd_sums(sum[v][2], sum[v][3]);
      float* to = score + v * (8 / L) * NEAR;
      if constexpr (L == 4) {
        v8 two = even_odd_sums(ab, cd);
        *(v4_any*)to = lower4(two);
        *(v4_any*)(to + NEAR) = upper4(two);
      } else {
        v8 even = SHUFFLE8(ab, cd, 0, 2, 8, 10, 4, 6, 12, 14);
        v8 odd = SHUFFLE8(ab, cd, 1, 3, 9, 11, 5, 7, 13, 15);
        *(v4_any*)to = lower4(even);
        *(v4_any*)(to + NEAR) = lower4(odd);
        *(v4_any*)(to + 2 * NEAR) = upper4(even);
        *(v4_any*)(to + 3 * NEAR) = upper4(odd);
      }
    }
  }
}

template <class T, i64 L>
INLINE void score_shared(const float* query, const u8* const* key, i64 n, i64 width, Ahead& ahead,
                         float* floats, float* score) {
  if constexpr (T::size == 4 || T::split) {
    dots_shared<T, L, T::size>(query, key, n, width, ahead, score);
  } else {
    const u8* rows[STEP];
    i64 pad = ceil_to(width, LANES);
    for (i64 j = 0; j < n; j += STEP) {
      for (i64 x = 0; x < STEP; x++) {
        rows[x] = (const u8*)(floats + x * pad);
        widen_row<T>(key[j + x], width, floats + x * pad);
      }
      dots_shared<F32, L, T::size>(query, rows, STEP, width, ahead, score + j);
    }
  }
}

#else

template <class T, i64 L>
INLINE void score_shared(const float*, const u8* const*, i64, i64, Ahead&, float*, float*) {}

#endif
