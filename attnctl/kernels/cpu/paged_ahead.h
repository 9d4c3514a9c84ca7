// What few rows of queries keep, and how memory is fetched for them.
//
// Memory is fetched one tile ahead, strictly in its own order, a line at a time and evenly over the
// arithmetic: then both take place at once. The order of use, all keys of a tile and then all its
// values, costs a third of the bandwidth, and so do lines of several rows in turns.

#pragma once

#include "paged_tiles.h"

constexpr i64 FEW = 16;       // rows
constexpr i64 WIDEST = 1024;  // of a key or a value, in this path

struct Direct {
  float *query, *sums, *score, *floats;  // floats: some tokens' keys
  float* total;                          // [FEW][LANES], to be added up
  i32 *seen, *any;
  float* staging;
  float top[FEW], keep[FEW];
  Tile tiles[2];
};

#if defined(__AVX512F__)
constexpr i64 SUMS = 16;  // accumulators at a time: they hide the latency of the sums
constexpr i64 ROWS = 8;
#else
constexpr i64 SUMS = 8;
constexpr i64 ROWS = 4;
#endif
constexpr i64 STEP = 8;   // tokens whose keys all rows use before the next are read
constexpr i64 NEAR = 32;  // tokens whose keys and then values are read while they are near
constexpr i64 SOME = 16;  // the same of up to FOUR rows, which have less to do for each
constexpr i64 FOUR = 4;
constexpr i64 ALONE = 8;  // and of one

INLINE i64 step_of(i64 rows) { return rows == 1 ? ALONE : rows <= FOUR ? SOME : NEAR; }

// rows whose scores are computed across lanes, in ones or twos of vectors; fewer: 0
INLINE i64 across(i64 rows) {
#if defined(__AVX512F__)
  return rows > 8 ? LANES : 0;
#elif defined(__AVX2__)
  return rows > 8 ? 2 * LANES : 0;
#else
  return rows > 8 ? 2 * LANES : rows > 4 ? LANES : 0;
#endif
}

// columns of a row that lie side by side in a vector, where rows share the vectors of keys; or 0
INLINE i64 shared(i64 rows, i64 width) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return rows > 8 || rows < 3 || width % 8 ? 0 : rows > 4 ? 2 : 4;
#else
  return 0;
#endif
}

// passes over a tile by rows in eights, fours, twos and ones
INLINE i64 passes_of(i64 rows) { return rows / ROWS + __builtin_popcount((u32)(rows % ROWS)); }

// ---- fetching ahead ----

// Lines that are fetched beside the weights of each of five to eight rows over floats. Scores read
// keys from the second cache at the same time and come last: they fetch less than values do.
constexpr i64 BETWEEN = 4;

struct Ahead {
  const u8 *at, *end;      // of what is being fetched
  const Run *run, *stop;   // of the next tile
  i64 row;
};

INLINE Ahead ahead_of(const Tile& next) {
  return {nullptr, nullptr, next.runs, next.runs + next.run_count, 0};
}

static void next_row(Ahead& f) {
  const Run& run = *f.run;
  f.at = run.at + f.row * run.stride;
  f.end = f.at + run.bytes;
  if (++f.row == run.rows) f.run++, f.row = 0;
}

// into the second-level cache: the first is full
INLINE void fetch(const u8* p) { __builtin_prefetch(p, 0, 2); }

static void fetch_lines(Ahead& f, i64 n) {
  for (; n > 0; n--, f.at += 64) {
    if (f.at >= f.end) {
      if (f.run == f.stop) return;
      next_row(f);
    }
    fetch(f.at);
  }
}

// a load of every line: into the first cache, and seen by the processor's own reading ahead
INLINE void touch_row(const u8* row, i64 bytes) {
  for (i64 x = 0; x < bytes; x += 64) (void)*(const volatile u8*)(row + x);
}

// where the next n lines lie, for a loop to fetch; where they lie apart, they are fetched here
INLINE const u8* take_lines(Ahead& f, i64 n, const u8* otherwise) {
  const u8* at = f.at;
  if (f.end - at >= 64 * n) {
    f.at += 64 * n;
    return at;
  }
  fetch_lines(f, n);
  return otherwise;
}
