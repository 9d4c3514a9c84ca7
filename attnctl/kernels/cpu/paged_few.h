// Few rows of queries, as when a model decodes: the cache is read as it is stored, once.

#pragma once

#include "paged_ahead.h"
#include "paged_scores.h"
#include "paged_weights.h"

// ---- sums of values ----

// sum[r][c] += weight[r] . value for one token and C columns of vectors
template <class T, i64 R, i64 C, bool PART>
INLINE void add_value(const float* weight, const u8* value, i64 left, vf (*sum)[C]) {
  vf v[C];
  if constexpr (C == 1) {
    v[0] = PART ? read_part<T>(value, left) : T::read(value);
  } else {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c += 2) {
      Two two = read_two<T>(value + c * LANES * T::size);
      v[c] = two.a;
      v[c + 1] = two.b;
    }
  }
#pragma GCC unroll 8
  for (i64 r = 0; r < R; r++) {
    vf w = splat(weight[r * NEAR]);
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) sum[r][c] += w * v[c];
  }
}

// sums[r] = keep[r] * sums[r] + weight[r] . value, for n tokens and C columns of vectors. Lines are
// fetched in the first `fetching` tokens, or evenly, those of half of a whole tile.
template <class T, i64 R, i64 C, bool PART, bool EVEN = false>
INLINE void mix(const float* weight, const float* keep, const u8* const* values, i64 n, i64 column,
                i64 width, Ahead& ahead, i64 fetching, float* sums, i64 pad) {
  constexpr i64 bytes = C * LANES * T::size;
  i64 from = column * T::size;
  const u8* lines = take_lines(ahead, fetching * bytes / 64, values[0]);
  vf sum[R][C];
#pragma GCC unroll 8
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) {
      vf x = *(const vf*)(sums + r * pad + column + c * LANES);
      sum[r][c] = keep ? x * keep[r] : x;
    }
  }
  i64 j = 0;
  for (; EVEN && j < NEAR; j += 4, lines += 2 * bytes) {
#pragma GCC unroll 4
    for (i64 x = 0; x < 2 * bytes; x += 64) fetch(lines + x);
#pragma GCC unroll 4
    for (i64 x = j; x < j + 4; x++)
      add_value<T, R, C, PART>(weight + x, values[x] + from, width - column, sum);
  }
  for (; !EVEN && j < n; j++) {
    if (j < fetching) {
#pragma GCC unroll 8
      for (i64 x = 0; x < bytes; x += 64) fetch(lines + j * bytes + x);
    }
    add_value<T, R, C, PART>(weight + j, values[j] + from, width - column, sum);
  }
#pragma GCC unroll 8
  for (i64 r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (i64 c = 0; c < C; c++) *(vf*)(sums + r * pad + column + c * LANES) = sum[r][c];
  }
}

// columns from `begin` on
template <class T, i64 R>
INLINE void mix_rows(const float* weight, const float* keep, const u8* const* values, i64 n,
                     i64 begin, i64 width, Ahead& ahead, i64 fetching, i64& r, i64 rows,
                     float* sums, i64 pad) {
  constexpr i64 C = least(SUMS / R, 8);
  for (; r + R <= rows; r += R) {
    const float *w = weight + r * NEAR, *k = keep ? keep + r : nullptr;
    float* to = sums + r * pad;
    i64 c = begin;
    for (; c + C * LANES <= width; c += C * LANES)
      mix<T, R, C, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    for (; c + 2 * LANES <= width; c += 2 * LANES)
      mix<T, R, 2, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    for (; c + LANES <= width; c += LANES)
      mix<T, R, 1, false>(w, k, values, n, c, width, ahead, fetching, to, pad);
    if (c < width) mix<T, R, 1, true>(w, k, values, n, c, width, ahead, fetching, to, pad);
  }
}

// keep: null where the sums so far stay as they are
template <class T>
static void mix_tile(Direct& d, const Attention& a, const Tile& t, Ahead& ahead, i64 rows,
                     const float* keep) {
  i64 w = a.value_width, pad = ceil_to(w, LANES), passes = passes_of(rows), r = 0;
  i64 f = (t.n + passes - 1) / passes, done = 0;
  if constexpr (ROWS == 8)
    mix_rows<T, 8>(d.score, keep, t.value, t.n, 0, w, ahead, f, r, rows, d.sums, pad);
  // eight rows use two columns before the next are read, and fetch evenly
  if (ROWS == 4 && rows == 8 && t.n == NEAR) {
    for (; done + 2 * LANES <= w; done += 2 * LANES) {
      mix<T, 4, 2, false, true>(d.score, keep, t.value, NEAR, done, w, ahead, f, d.sums, pad);
      mix<T, 4, 2, false, true>(d.score + 4 * NEAR, keep ? keep + 4 : nullptr, t.value, NEAR, done,
                                w, ahead, f, d.sums + 4 * pad, pad);
    }
    if (done == w) return;
  }
  mix_rows<T, 4>(d.score, keep, t.value, t.n, done, w, ahead, f, r, rows, d.sums, pad);
  mix_rows<T, 2>(d.score, keep, t.value, t.n, 0, w, ahead, f, r, rows, d.sums, pad);
  mix_rows<T, 1>(d.score, keep, t.value, t.n, 0, w, ahead, f, r, rows, d.sums, pad);
}

// ---- masks ----

// drops the tokens that no row sees, so that what is stored there is never multiplied
static void drop_unseen(Direct& d, Tile& t, i64 rows) {
  i64 kept = 0;
  for (i64 j = 0; j < t.n; j++) {
    if (!d.any[j]) continue;
    t.value[kept] = t.value[j];
    for (i64 r = 0; r < rows; r++) d.score[r * NEAR + kept] = d.score[r * NEAR + j];
    kept++;
  }
  for (i64 r = 0; r < rows; r++)
    for (i64 j = kept; j < NEAR; j++) d.score[r * NEAR + j] = NEVER;
  t.n = kept;
}

// returns whether some row sees some token of the tile
static bool mask_direct(const Attention& a, const Sequence& s, const Item& item, Direct& d,
                        Tile& t) {
  i64 group = a.heads / a.kv_heads, padded = ceil_to(t.n, LANES), before = s.length - s.queries;
  i64 first = before + item.row / group, last = before + (item.row + item.rows - 1) / group;
  if (all_see(a, s, first, last, t.at, t.n)) {
    for (i64 r = 0; r < item.rows; r++)
      for (i64 j = t.n; j < padded; j++) d.score[r * NEAR + j] = NEVER;
    return true;
  }
  for (i64 j = 0; j < padded; j++) d.any[j] = 0;
  i64 position = first - 1;
  for (i64 r = 0; r < item.rows; r++) {
    i64 i = before + (item.row + r) / group;
    if (i != position) {
      mark_row(a, s, i, t.at, t.n, d.seen);
      for (i64 j = 0; j < t.n; j++) d.any[j] |= d.seen[j];
      position = i;
    }
    mask(d.seen, 0, padded, d.score + r * NEAR);
  }
  i64 n = t.n, count = 0;
  for (i64 j = 0; j < n; j++) count += d.any[j] != 0;
  if (count < n) drop_unseen(d, t, item.rows);
  return count > 0;
}

INLINE void bend_tile(const Attention& a, const Sequence& s, const Item& item, const Tile& t,
                      Direct& d) {
  if (!bends(a)) return;
  i64 group = a.heads / a.kv_heads, before = s.length - s.queries;
  for (i64 r = 0; r < item.rows; r++) {
    i64 row = item.row + r;
    bend(a, t, before + row / group, item.kv_head * group + row % group, 0, ceil_to(t.n, LANES),
         d.score + r * NEAR);
  }
}

// ---- one item ----

// a row in the order of read_two, and back
template <class T>
INLINE void split_pairs(float* row, i64 width) {
  if constexpr (!T::split) return;
  for (i64 d = 0; d + 2 * LANES <= width; d += 2 * LANES) {
    float order[2 * LANES];
    for (i64 l = 0; l < LANES; l++)
      order[l] = row[d + 2 * l], order[LANES + l] = row[d + 2 * l + 1];
    for (i64 l = 0; l < 2 * LANES; l++) row[d + l] = order[l];
  }
}

template <class T>
INLINE void join_pairs(float* row, i64 width) {
  if constexpr (!T::split) return;
  for (i64 d = 0; d + 2 * LANES <= width; d += 2 * LANES) {
    float order[2 * LANES];
    for (i64 l = 0; l < LANES; l++)
      order[2 * l] = row[d + l], order[2 * l + 1] = row[d + LANES + l];
    for (i64 l = 0; l < 2 * LANES; l++) row[d + l] = order[l];
  }
}

static i64 direct_bytes(const Attention& a) {
  i64 wide = ceil_to(a.width, LANES) + ceil_to(a.value_width, LANES);
  return ((FEW + STEP) * wide + FEW * (NEAR + LANES) + 2 * NEAR) * 4 + (i64)sizeof(Direct) + 1024;
}

static Direct* lay_out_direct(const Attention& a, Arena& arena, float* staging) {
  i64 pad = ceil_to(a.width, LANES), pad_v = ceil_to(a.value_width, LANES);
  Direct* d = (Direct*)arena.floats((i64)sizeof(Direct) / 4);
  d->query = arena.floats(FEW * pad);
  d->sums = arena.floats(FEW * pad_v);
  d->score = arena.floats(FEW * NEAR);
  d->floats = arena.floats(STEP * pad);
  d->total = arena.floats(FEW * LANES);
  d->seen = (i32*)arena.floats(NEAR);
  d->any = (i32*)arena.floats(NEAR);
  d->staging = staging;
  return d;
}

template <class T>
static void prepare(const Attention& a, const Sequence& s, const Item& item, Direct& d) {
  i64 group = a.heads / a.kv_heads, pad = ceil_to(a.width, LANES), lanes = across(item.rows);
  i64 pad_v = ceil_to(a.value_width, LANES), share = shared(item.rows, a.width);
  i64 rows = share ? 16 / share : most(item.rows, lanes);
  for (i64 r = 0; r < rows; r++) {
    float* to = lanes || share ? d.floats : d.query + r * pad;
    i64 row = item.row + r;
    if (r < item.rows) {
      query_row(a, s.first + row / group, item.kv_head * group + row % group, query_factor(a), to,
                pad);
      if (!share) split_pairs<T>(to, a.width);
    }
    for (i64 x = 0; lanes && x < a.width; x++)
      d.query[x * lanes + r] = r < item.rows ? to[x] : 0;
    float* lane = d.query + r * share;
    for (i64 x = 0; share && x < a.width; x += share, lane += 16)
      for (i64 y = 0; y < share; y++) lane[y] = r < item.rows ? to[x + y] : 0;
    if (r >= item.rows) continue;
    for (i64 x = 0; x < pad_v; x++) d.sums[r * pad_v + x] = 0;
    store(d.total + r * LANES, (vf){});
    d.top[r] = NEVER;
  }
}

template <class T>
static void direct(const Attention& a, const Item& item, const Partial& partial, Direct& d) {
  Sequence s = sequence_of(a, item.b);
  i64 rows = item.rows, pad_v = ceil_to(a.value_width, LANES), now = 0;
  i64 step = step_of(rows);
  bool between = T::size == 4 && shared(rows, a.width) == 2;
  prepare<T>(a, s, item, d);
  find_tile(a, s, item, item.begin, step, d.tiles[0]);
  for (i64 at = item.begin; at < item.end; at += step, now ^= 1) {
    Tile &t = d.tiles[now], &next = d.tiles[now ^ 1];
    find_tile(a, s, item, at + step, step, next);
    Ahead ahead = ahead_of(next);
    stage(a, t, d.staging);
    score_tile<T>(d, a, t, ahead, rows);
    bend_tile(a, s, item, t, d);
    i64 padded = ceil_to(t.n, LANES);
    if (mask_direct(a, s, item, d, t)) {
      bool raised = between ? weigh_tile<true>(d, rows, padded, ahead)
                            : weigh_tile<false>(d, rows, padded, ahead);
      mix_tile<T>(d, a, t, ahead, rows, raised ? d.keep : nullptr);
    }
    fetch_lines(ahead, 1 << 20);
  }
  for (i64 r = 0; r < rows; r++) {
    join_pairs<T>(d.sums + r * pad_v, a.value_width);
    leave(a, s, item, partial, r, d.sums + r * pad_v, d.top[r], sum_of(load(d.total + r * LANES)));
  }
}
